//! The plots of a report, as SVG.
//!
//! Called by: the page. One line for each target, all in one plot, so that they can be
//! compared by eye.

use std::fmt::Display;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::TargetReport;
use super::table::time;

const SIZE: (u32, u32) = (900, 320);

/// Colours that can be told apart with every kind of sight (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 0),
];

/// A plot that could not be drawn.
#[derive(Debug)]
pub struct PlotError(String);

impl Display for PlotError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a plot cannot be drawn: {}", self.0)
    }
}

impl std::error::Error for PlotError {}

fn failed(error: impl Display) -> PlotError {
    PlotError(error.to_string())
}

type Line = (String, Vec<(f64, f64)>);

/// Times by quantile: the further right, the rarer.
pub(super) fn latency_curve(targets: &[TargetReport]) -> Result<String, PlotError> {
    let lines: Vec<Line> = targets
        .iter()
        .map(|target| {
            let points = target.latency.curve_us.iter();
            // One unit to the right for each nine.
            let points = points.map(|(quantile, us)| (-(1.0 - quantile).log10(), us.max(1.0)));
            (target.name.clone(), points.collect())
        })
        .collect();
    let nines = |place: &f64| format!("{}", Quantile(*place));
    svg(|area| {
        let (width, (low, high)) = (right_end(&lines), positive_range(&lines));
        draw(area, &lines, None, 0.0..width, (low..high).log_scale(), &nines, &|us| time(*us))
    })
}

/// Requests/s over the time of a round; `onset_s` is marked.
pub(super) fn throughput(
    targets: &[TargetReport],
    onset_s: Option<f64>,
) -> Result<String, PlotError> {
    let lines = over_time(targets, |slice| slice.requests_per_second);
    let most = lines.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).fold(1.0, f64::max);
    let mark = onset_s.map(|at| [(at, 0.0), (at, most * 1.1)]);
    svg(|area| {
        let rate = |rate: &f64| heatsink_control::words::whole(*rate);
        let (across, up) = (0.0..right_end(&lines), 0.0..most * 1.1);
        draw(area, &lines, mark, across, up, &|at| seconds(*at), &rate)
    })
}

/// The 99th percentile over the time of a round; `onset_s` is marked.
pub(super) fn p99(targets: &[TargetReport], onset_s: Option<f64>) -> Result<String, PlotError> {
    let lines = over_time(targets, |slice| slice.p99_us.max(1.0));
    svg(|area| {
        let (low, high) = positive_range(&lines);
        let (across, up) = (0.0..right_end(&lines), (low..high).log_scale());
        let mark = onset_s.map(|at| [(at, low), (at, high)]);
        draw(area, &lines, mark, across, up, &|at| seconds(*at), &|us| time(*us))
    })
}

fn seconds(at: f64) -> String {
    format!("{at:.1} s")
}

/// `0` is the median of nothing, `1` is 90 %, `2` is 99 %.
struct Quantile(f64);

impl Display for Quantile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = 100.0 * (1.0 - 10_f64.powf(-self.0));
        let decimals = (self.0.ceil() as usize).saturating_sub(2);
        write!(f, "{percent:.decimals$} %")
    }
}

fn over_time(targets: &[TargetReport], of: impl Fn(&super::Slice) -> f64) -> Vec<Line> {
    let line = |target: &TargetReport| {
        let points = target.series.iter().map(|slice| (slice.at_ms as f64 / 1000.0, of(slice)));
        (target.name.clone(), points.collect())
    };
    targets.iter().map(line).collect()
}

fn right_end(lines: &[Line]) -> f64 {
    lines.iter().flat_map(|(_, points)| points).map(|(x, _)| *x).fold(0.001, f64::max)
}

fn positive_range(lines: &[Line]) -> (f64, f64) {
    let all = || lines.iter().flat_map(|(_, points)| points).map(|(_, y)| *y);
    let high = all().fold(10.0, f64::max);
    (all().fold(high, f64::min) * 0.8, high * 1.3)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn svg(draw: impl FnOnce(&Area<'_>) -> Result<(), PlotError>) -> Result<String, PlotError> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        draw(&area)?;
        area.present().map_err(failed)?;
    }
    Ok(text)
}

fn draw<X, Y>(
    area: &Area<'_>,
    lines: &[Line],
    mark: Option<[(f64, f64); 2]>,
    across: X,
    up: Y,
    x_words: &dyn Fn(&f64) -> String,
    y_words: &dyn Fn(&f64) -> String,
) -> Result<(), PlotError>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(76)
        .build_cartesian_2d(across, up)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .y_labels(6)
        .x_label_formatter(&|x| x_words(x))
        .y_label_formatter(&|y| y_words(y))
        .draw()
        .map_err(failed)?;
    if let Some(mark) = mark {
        let style = RGBColor(120, 120, 120).stroke_width(2);
        chart
            .draw_series(LineSeries::new(mark, style))
            .map_err(failed)?
            .label("keys become hot")
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    for (at, (name, points)) in lines.iter().enumerate() {
        let style = COLOURS[at % COLOURS.len()].stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))
            .map_err(failed)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .border_style(RGBColor(200, 200, 200))
        .position(SeriesLabelPosition::UpperLeft)
        .draw()
        .map_err(failed)
}
