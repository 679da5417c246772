export const skies = ["sunny", "cloudy", "rainy", "snowy"] as const;

export type Sky = (typeof skies)[number];

/** The destination the page shows. It belongs to the page: the copilot changes it by a tool. */
export interface View {
  city: string;
  sky: Sky;
}

export const home: View = { city: "Anywhere", sky: "cloudy" };

/** A weather service that needs no key, because it makes everything up. */
export function forecast(city: string): { sky: Sky; celsius: number } {
  const seed = [...city.toLowerCase()].reduce((sum, letter) => sum + letter.charCodeAt(0), 0);
  const sky = skies[seed % skies.length];
  return { sky, celsius: sky === "snowy" ? -(seed % 9) : 8 + (seed % 20) };
}
