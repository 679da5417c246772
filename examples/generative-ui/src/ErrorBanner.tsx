interface ErrorBannerProps {
  error: Error;
  onDismiss: () => void;
}

/** What went wrong, for the person in front of the page. CopilotKit itself only logs it. */
export function ErrorBanner({ error, onDismiss }: ErrorBannerProps) {
  return (
    <div className="error" role="alert">
      <p>
        <b>That did not work.</b> {error.message}
      </p>
      <button onClick={onDismiss}>Dismiss</button>
    </div>
  );
}
