import { useState } from "react";

const pattern =
  /(--[^\n]*)|('(?:[^']|'')*')|\b(\d+(?:\.\d+)?)\b|\b(select|from|where|group|order|by|having|limit|offset|with|as|on|join|left|right|inner|outer|full|cross|and|or|not|in|is|null|case|when|then|else|end|distinct|union|all|between|like|ilike|desc|asc|interval|date|timestamp|true|false|over|partition|qualify|filter|using|cast|try_cast)\b/gi;

const kinds = ["comment", "text", "number", "word"];

/** SQL in colours, to read and to copy. */
export function Sql({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => {
    navigator.clipboard.writeText(text).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 1600);
    });
  };
  return (
    <div className="sql">
      <pre tabIndex={0}>
        <code>{colour(text)}</code>
      </pre>
      <button onClick={copy}>{isCopied ? "Copied" : "Copy"}</button>
    </div>
  );
}

function colour(text: string) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    parts.push(text.slice(end, match.index));
    const kind = kinds[match.slice(1).findIndex((group) => group !== undefined)];
    parts.push(
      <span key={match.index} className={kind}>
        {match[0]}
      </span>,
    );
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}
