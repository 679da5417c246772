import { useChatContext } from "@copilotkit/react-ui";

/** CopilotKit's own header asks the maker's cloud for updates whenever it appears; this does not. */
export function Header() {
  const { setOpen, icons, labels } = useChatContext();
  return (
    <div className="copilotKitHeader">
      <div>{labels.title}</div>
      <div className="copilotKitHeaderControls">
        <button
          className="copilotKitHeaderCloseButton"
          onClick={() => setOpen(false)}
          aria-label="Close"
        >
          {icons.headerCloseIcon}
        </button>
      </div>
    </div>
  );
}
