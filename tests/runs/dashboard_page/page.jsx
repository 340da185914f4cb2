// The chart's dashboard as Grafana draws it: its panels, fields and time are Grafana's own packages; what only Grafana's
// server has (the two panel types around them, variables, the grid) is here. Asks Prometheus by itself.
//
// window.given: {dashboard, prometheus, from, to (unix seconds), scrapeSeconds, labels, theme}.
// window.drawn, at the end: [{id, title, type, targets: [{refId, expr, step, series, points, error}]}].
import '@fontsource/inter/400.css';
import '@fontsource/inter/500.css';
import {
  EventBusSrv, FieldConfigOptionsRegistry, FieldType, createDataFrame, createTheme, dateTime, getFieldDisplayValues,
  applyFieldOverrides, identityOverrideProcessor, rangeUtil, VizOrientation,
} from '@grafana/data';
import {
  BigValue, GlobalStyles, Icon, PanelChrome, PanelContextProvider, ThemeContext, TimeSeries, VizRepeater,
} from '@grafana/ui';
import { createRoot } from 'react-dom/client';

const { dashboard, prometheus, from, to, scrapeSeconds, theme: mode } = window.given;
const theme = createTheme({ colors: { mode } });
const range = { from: dateTime(from * 1000), to: dateTime(to * 1000), raw: { from: 'now', to: 'now' } };
const WIDTH = 1600, COLUMNS = 24, CELL = 30, GAP = 8;
const eventBus = new EventBusSrv();
const untranslated = text => text;

// What the panel types of the server say about fields that a dashboard leaves open.
const OF_TIME_SERIES = {
  color: { mode: 'palette-classic' },
  custom: {
    drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none', spanNulls: false,
    insertNulls: false, showPoints: 'auto', pointSize: 5, stacking: { mode: 'none', group: 'A' }, barAlignment: 0,
    axisPlacement: 'auto', axisColorMode: 'text', axisBorderShow: false, axisCenteredZero: false, axisLabel: '',
    scaleDistribution: { type: 'linear' }, hideFrom: { tooltip: false, viz: false, legend: false },
    thresholdsStyle: { mode: 'off' }, lineStyle: { fill: 'solid' },
  },
};
const OF_STAT = {
  color: { mode: 'thresholds' },
  thresholds: { mode: 'absolute', steps: [{ color: 'green', value: null }, { color: 'red', value: 80 }] },
};
const PROPERTIES = ['unit', 'min', 'max', 'decimals', 'displayName', 'color', 'thresholds', 'mappings', 'noValue'];

function property(path, isCustom) {
  return {
    id: isCustom ? `custom.${path}` : path, path, isCustom, name: path, settings: {},
    shouldApply: () => true, process: identityOverrideProcessor, override: () => null, editor: () => null,
    getItemsCount: () => 0,
  };
}
const properties = new FieldConfigOptionsRegistry(() => [
  ...PROPERTIES.map(path => property(path, false)),
  ...Object.keys(OF_TIME_SERIES.custom).map(path => property(path, true)),
]);

function fieldConfig(panel) {
  const own = panel.fieldConfig.defaults, type = panel.type === 'stat' ? OF_STAT : OF_TIME_SERIES;
  const defaults = structuredClone({ ...type, ...own, custom: { ...type.custom, ...own.custom } });
  for (const step of defaults.thresholds?.steps ?? []) {
    step.value ??= -Infinity;  // JSON has no such number
  }
  return { defaults, overrides: panel.fieldConfig.overrides };
}

// ---------------------------------------------------------------- what Prometheus is asked, and says

function interpolate(expr, { interval, intervalMs }) {
  const scrapeMs = scrapeSeconds * 1000;
  const values = {
    __rate_interval: rangeUtil.secondsToHms(Math.max(intervalMs + scrapeMs, 4 * scrapeMs) / 1000),
    __interval: interval,
    __range: `${Math.round(to - from)}s`,
  };
  for (const variable of dashboard.templating.list) {
    if (variable.type === 'query') {
      values[variable.name] = variable.allValue;  // "All" is chosen
    }
  }
  return expr.replace(/\$(\w+)/g, (whole, name) => values[name] ?? whole);
}

async function ask(path, parameters) {
  const answer = await fetch(`${prometheus}/api/v1/${path}?${new URLSearchParams(parameters)}`);
  return answer.json();
}

const named = (format, labels) => format.replace(/\{\{\s*(\w+)\s*\}\}/g, (whole, name) => labels[name] ?? name);

// Of a range every step has a point: where there is none, Grafana leaves a gap.
function pointsOf(series, { start, end, step }) {
  if (series.value) {
    return [series.value];
  }
  const known = new Map(series.values), found = [];
  for (let at = start; at <= end; at += step) {
    found.push([at, known.get(at) ?? 'NaN']);
  }
  return found;
}

function toFrame(target, series, whole) {
  const points = pointsOf(series, whole), stepMs = whole.step * 1000;
  const name = target.legendFormat ? named(target.legendFormat, series.metric) : target.expr;
  return createDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, config: { interval: stepMs }, values: points.map(([at]) => at * 1000) },
      {
        name: 'Value', type: FieldType.number, labels: series.metric, config: { displayNameFromDS: name },
        values: points.map(([, value]) => (value === 'NaN' ? null : Number(value.replace('Inf', 'Infinity')))),
      },
    ],
  });
}

async function answerTo(panel, target, width) {
  const chosen = rangeUtil.calculateInterval(range, Math.floor(width), `${scrapeSeconds}s`);
  const step = chosen.intervalMs / 1000, query = interpolate(target.expr, chosen);
  const whole = { query, start: Math.floor(from / step) * step, end: Math.floor(to / step) * step, step };
  const answer = target.instant ? await ask('query', { query, time: to }) : await ask('query_range', whole);
  const found = answer.data?.result ?? [];
  const frames = found.map(series => toFrame(target, series, whole));
  const points = frames.map(frame => frame.fields[1].values.filter(value => value !== null).length);
  const told = {
    refId: target.refId, expr: query, step, series: frames.map(frame => frame.fields[1].config.displayNameFromDS),
    points: points.reduce((sum, count) => sum + count, 0), error: answer.error ?? '',
    values: frames.map(frame => frame.fields[1].values.at(-1)),
  };
  return { frames, told };
}

// ---------------------------------------------------------------- panels

const place = ({ x, w, h }) => {
  const column = (WIDTH - GAP * (COLUMNS - 1)) / COLUMNS;
  return { left: x * (column + GAP), width: w * column + (w - 1) * GAP, height: h * CELL + (h - 1) * GAP };
};

function Stat({ panel, frames, config, width, height }) {
  const { colorMode, graphMode, textMode, reduceOptions } = panel.options;
  const values = () => getFieldDisplayValues({
    fieldConfig: config, reduceOptions, replaceVariables: untranslated, theme, data: frames,
    sparkline: graphMode !== 'none', timeZone: 'utc',
  });
  const draw = one => (
    <BigValue value={one.value.display} count={one.count} sparkline={one.value.sparkline} colorMode={colorMode}
      graphMode={graphMode} justifyMode="auto" textMode={textMode} width={one.width} height={one.height} theme={theme} />
  );
  return (
    <VizRepeater getValues={values} renderValue={draw} width={width} height={height} source={frames}
      orientation={VizOrientation.Auto} renderCounter={0} itemSpacing={3} autoGrid={true} />
  );
}

function Graph({ panel, frames, width, height }) {
  if (!frames.length) {
    const text = panel.fieldConfig.defaults.noValue ?? 'No data';
    return <div className="nothing" style={{ width, height, color: theme.colors.text.secondary }}>{text}</div>;
  }
  const legend = { showLegend: true, calcs: [], ...panel.options.legend };
  return (
    <TimeSeries frames={frames} structureRev={1} timeRange={range} timeZone="utc" width={width} height={height}
      legend={legend} options={panel.options} />
  );
}

function Panel({ panel, frames, width, height, top, left }) {
  const config = fieldConfig(panel);
  const data = applyFieldOverrides({
    data: frames, fieldConfig: config, fieldConfigRegistry: properties, replaceVariables: untranslated, theme,
    timeZone: 'utc',
  });
  const Type = panel.type === 'stat' ? Stat : Graph;
  return (
    <section style={{ position: 'absolute', top, left, width, height }}>
      <PanelContextProvider value={{ eventsScope: '', eventBus }}>
        <PanelChrome title={panel.title} description={panel.description} width={width} height={height}>
          {(innerWidth, innerHeight) => (
            <Type panel={panel} frames={data} config={config} width={innerWidth} height={innerHeight} />
          )}
        </PanelChrome>
      </PanelContextProvider>
    </section>
  );
}

function Row({ row, panels }) {
  const top = row.gridPos.y + 1, end = Math.max(...panels.map(({ panel }) => panel.gridPos.y + panel.gridPos.h));
  return (
    <div className="dashboard-row" id={`row-${row.id}`}>
      <h2><Icon name="angle-down" /> {row.title}</h2>
      <div style={{ position: 'relative', height: (end - top) * (CELL + GAP) - GAP }}>
        {panels.map(one => (
          <Panel key={one.panel.id} {...one} {...place(one.panel.gridPos)}
            top={(one.panel.gridPos.y - top) * (CELL + GAP)} />
        ))}
      </div>
    </div>
  );
}

function Variables() {
  return (
    <div className="variables" id="variables">
      {dashboard.templating.list.map(one => (
        <span key={one.name}>
          <b>{one.label}</b><i>{one.type === 'query' ? one.current.text : 'Prometheus'}</i>
        </span>
      ))}
    </div>
  );
}

const STYLE = `
  body { background: ${theme.colors.background.canvas}; width: ${WIDTH + 32}px; height: auto; overflow: auto; }
  #dashboard { padding: 16px; }
  .dashboard-row { padding-bottom: 8px; }
  .dashboard-row h2 { font-size: 16px; margin: 0; height: 30px; display: flex; align-items: center; gap: 6px; }
  .nothing { display: flex; align-items: center; justify-content: center; font-size: 18px; }
  .variables { display: flex; gap: 16px; padding-bottom: 8px; }
  .variables b, .variables i { border: 1px solid ${theme.colors.border.medium}; padding: 6px 8px; display: inline-block;
    background: ${theme.colors.background.secondary}; font-style: normal; font-size: 12px; }
  .variables i { background: ${theme.colors.background.primary}; min-width: 80px; border-left: none; font-weight: 400; }
  .variables b { font-weight: 500; }
`;

async function draw() {
  const drawn = [], rows = [];
  for (const panel of dashboard.panels) {
    if (panel.type === 'row') {
      rows.push({ row: panel, panels: [] });
      continue;
    }
    const answers = await Promise.all(panel.targets.map(one => answerTo(panel, one, place(panel.gridPos).width)));
    const { id, title, type } = panel;
    drawn.push({ id, title, type, targets: answers.map(one => one.told) });
    rows.at(-1).panels.push({ panel, frames: answers.flatMap(one => one.frames) });
  }
  createRoot(document.getElementById('dashboard')).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <style>{STYLE}</style>
      <Variables />
      {rows.map(one => <Row key={one.row.id} {...one} />)}
    </ThemeContext.Provider>,
  );
  await document.fonts.ready;
  await new Promise(resolve => setTimeout(resolve, 3000));  // icons are loaded one by one, and legends measured
  window.drawn = drawn;
}

draw();
