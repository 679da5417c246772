/** What 1.10.6 says when a person pressed stop, or asked before the suggestions had come. */
const aborted = /^\[Network\] (undefined|Cannot read properties of undefined)/;

interface ErrorBannerProps {
  message: string;
  onDismiss: () => void;
}

/**
 * What went wrong, for the person in front of the page.
 *
 * CopilotKit shows its own banner on localhost only (or with `showDevConsole`, which also brings
 * the inspector's button); `renderError` works everywhere, and without a cloud key.
 */
export function ErrorBanner({ message, onDismiss }: ErrorBannerProps) {
  if (aborted.test(message)) return null;
  return (
    <div className="error" role="alert">
      <div>
        <strong>The copilot could not answer.</strong>
        <p>{message}</p>
      </div>
      <button onClick={onDismiss} aria-label="Dismiss">
        ×
      </button>
    </div>
  );
}
