interface WeatherCardProps {
  city?: string;
  /** What the tool returned, as JSON; undefined while it is called. */
  result?: string;
}

/** A call of `showWeather`, drawn into the conversation: it fills while it happens. */
export function WeatherCard({ city, result }: WeatherCardProps) {
  const weather = result === undefined ? undefined : parse(result);
  return (
    <article className={`weather ${weather?.sky ?? "waiting"}`} aria-label={`Weather in ${city}`}>
      <div>
        <h3>{city ?? "…"}</h3>
        <p>{weather ? weather.sky : "Looking out of the window…"}</p>
      </div>
      {weather && <strong>{weather.celsius}°</strong>}
    </article>
  );
}

function parse(result: string): { sky: string; celsius: number } | undefined {
  try {
    return JSON.parse(result);
  } catch {
    return undefined; // "Error: …", when the handler threw
  }
}
