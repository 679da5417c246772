import { View, parse } from "vega";
import { expressionInterpreter } from "vega-interpreter";
import { type TopLevelSpec, compile } from "vega-lite";
import { Handler } from "vega-tooltip";

import type { Theme } from "./useTheme";

const palettes = {
  light: ["#0b7a67", "#d9822b", "#4f63d2", "#c2405a", "#7b9a24", "#8554b0", "#2f94b8", "#8d6e57"],
  dark: ["#3ec7a9", "#f0a554", "#8c9bff", "#f0758c", "#b5d155", "#bf93ea", "#67c5e8", "#c9a98f"],
};
const inks = {
  light: { text: "#46524e", line: "#e3e5df", paper: "#ffffff" },
  dark: { text: "#a9b8b2", line: "#2a3632", paper: "#161d1b" },
};

interface Encoding {
  color?: { value?: string; scale?: { range?: string[] } };
}

interface Spec extends Record<string, unknown> {
  encoding?: Encoding;
  mark?: { stroke?: string };
}

/** Draw a chart into an element; the caller ends what is returned. Nothing is fetched for it. */
export async function drawChart(element: HTMLElement, spec: object, theme: Theme): Promise<View> {
  const { spec: vega } = compile(styleChart(spec, theme) as TopLevelSpec);
  const refuse = () => Promise.reject(new Error("A chart brings its data along."));
  const view = new View(parse(vega, undefined, { ast: true }), {
    expr: expressionInterpreter, // no eval: pages with a strict policy show charts as well
    loader: { load: refuse, sanitize: refuse, http: refuse, file: refuse } as never,
    renderer: "svg",
    container: element,
    hover: true,
    tooltip: new Handler({ theme }).call,
  });
  await view.runAsync();
  return view;
}

/** The colours of the page instead of those of the server, and all the width there is. */
function styleChart(spec: object, theme: Theme): object {
  const { text, line, paper } = inks[theme];
  const colors = palettes[theme];
  const isSingle = "mark" in spec || "layer" in spec;
  const { $schema, title, background, usermeta, config, padding, ...own } = spec as Spec;
  const rest = { ...own, ...(own.encoding && { encoding: recolor(own.encoding, colors) }) };
  if (own.mark?.stroke) rest.mark = { ...own.mark, stroke: paper };
  return {
    ...rest,
    ...(isSingle && { width: "container", height: 280, autosize: { type: "fit", contains: "padding" } }),
    background: "transparent",
    padding: 4,
    config: {
      font: "Inter, system-ui, sans-serif",
      view: { stroke: null },
      range: { category: colors, ramp: [paper, colors[0]], heatmap: [paper, colors[0]] },
      mark: { color: colors[0], tooltip: true },
      bar: { cornerRadiusEnd: 3, color: colors[0] },
      line: { strokeWidth: 2.5, color: colors[0], strokeJoin: "round", strokeCap: "round" },
      area: { color: colors[0], fillOpacity: 0.25, line: true },
      point: { filled: true, size: 48, color: colors[0] },
      arc: { stroke: paper, strokeWidth: 2 },
      text: { color: text },
      axis: {
        labelColor: text,
        titleColor: text,
        gridColor: line,
        domain: false,
        ticks: false,
        labelPadding: 8,
        labelFontSize: 11.5,
        titleFontSize: 11.5,
        titleFontWeight: 500,
        titlePadding: 12,
      },
      axisX: { grid: false, labelOverlap: true, labelFlush: false },
      axisQuantitative: { tickCount: 5 },
      legend: {
        orient: "top",
        labelColor: text,
        titleColor: text,
        title: null,
        symbolType: "circle",
        labelFontSize: 12,
      },
    },
  };
}

/** Series get the colours of the page, in the order in which the server chose its own. */
function recolor(encoding: Encoding, colors: string[]): Encoding {
  const { color } = encoding;
  if (color?.value) return { ...encoding, color: { ...color, value: colors[0] } };
  if (!color?.scale?.range) return encoding;
  const range = color.scale.range.map((_, at) => colors[at % colors.length]);
  return { ...encoding, color: { ...color, scale: { ...color.scale, range } } };
}
