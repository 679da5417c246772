const paths = {
  pencil: "M4 20l4-1L19 8l-3-3L5 16l-1 4M14 7l3 3",
  archive: "M4 5h16v4H4zM6 9v10h12V9M10 13h4",
  restore: "M4 5h16v4H4zM6 9v10h12V9M12 17v-5M9.5 14.5L12 12l2.5 2.5",
  bin: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  cross: "M6 6l12 12M18 6L6 18",
  check: "M5 13l4 4L19 7",
};

/** A line drawing of 24 × 24, for those who see it; the button around it has the words. */
export function Icon({ name }: { name: keyof typeof paths }) {
  return (
    <svg viewBox="0 0 24 24" className="icon" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}
