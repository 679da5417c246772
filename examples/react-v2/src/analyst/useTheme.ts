import { useSyncExternalStore } from "react";

export type Theme = "light" | "dark";

const key = "analyst-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

function read(): Theme {
  return (localStorage.getItem(key) as Theme | null) ?? (system.matches ? "dark" : "light");
}

function apply() {
  document.documentElement.classList.toggle("dark", read() === "dark"); // CopilotKit looks there
  listeners.forEach((listener) => listener());
}

system.addEventListener("change", apply);
apply();

export function toggleTheme() {
  localStorage.setItem(key, read() === "dark" ? "light" : "dark");
  apply();
}

/** Light or dark: what the person chose, else what their system says. */
export function useTheme(): Theme {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, read);
}
