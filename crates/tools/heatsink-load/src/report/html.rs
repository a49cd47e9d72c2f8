//! A report as one page: no other file, no network, nothing to run.
//!
//! Called by: the command line.
//! Invariant: every text that came from outside is escaped.

use std::fmt::Write;

use heatsink_control::words;

pub use super::plots::PlotError;
use super::table::time;
use super::{Report, TargetReport, plots};

const STYLE: &str = include_str!("html/style.css");

/// The page.
pub fn page(report: &Report) -> Result<String, PlotError> {
    let settings = &report.settings;
    let mut body = String::new();
    let _ = write!(
        body,
        "<h1>heatsink load: {}</h1>\n<p>{}</p>\n",
        escaped(settings.scenario),
        escaped(&setting_words(report)),
    );
    body.push_str(&verdict(report));
    body.push_str(&table(report));
    let onset_s = settings.onset_ms.map(|onset_ms| onset_ms as f64 / 1000.0);
    let charts = [
        (
            "Times by percentile",
            "the further right, the rarer",
            plots::latency_curve(&report.targets)?,
        ),
        ("Requests a second over a round", "", plots::throughput(&report.targets, onset_s)?),
        ("99th percentile over a round", "", plots::p99(&report.targets, onset_s)?),
    ];
    for (title, remark, svg) in charts {
        let _ = writeln!(
            body,
            "<figure role=\"img\" aria-label=\"{title}\"><figcaption>{title} <small>{remark}</small>\
             </figcaption>{svg}</figure>"
        );
    }
    for target in &report.targets {
        body.push_str(&details(target));
    }
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>heatsink load: {}</title><style>{STYLE}</style></head>\n<body><main>\n{body}\
         </main></body></html>\n",
        escaped(settings.scenario)
    ))
}

fn setting_words(report: &Report) -> String {
    let settings = &report.settings;
    let pace = match settings.rate_per_second {
        Some(rate) => {
            format!("{} requests/s, times count from the moment each was due", words::whole(rate))
        }
        None => "as fast as possible".to_owned(),
    };
    format!(
        "Seed {}; {} connections with {} out at once, {pace}; {} of {:.1} s after {:.1} s of warm-up; \
         {} keys of {} bytes, exponent {}, {} writes.",
        settings.seed,
        settings.connections,
        settings.pipeline,
        words::count(settings.rounds as usize, "round", "rounds"),
        settings.round_ms as f64 / 1000.0,
        settings.warmup_ms as f64 / 1000.0,
        words::whole(settings.keys.into()),
        settings.value_bytes,
        settings.exponent,
        words::percent(settings.write_share),
    )
}

fn verdict(report: &Report) -> String {
    let (class, text) = match (report.mismatches(), report.errors()) {
        (0, 0) => ("good", "All replies were correct.".to_owned()),
        (0, errors) => ("fair", format!("No reply was wrong; {errors} errors.")),
        (wrong, errors) => ("bad", format!("{wrong} replies were wrong; {errors} errors.")),
    };
    format!("<p class=\"{class}\"><strong>{text}</strong></p>\n")
}

fn table(report: &Report) -> String {
    let mut text = "<table><thead><tr><th>target</th><th>req/s</th><th>p50</th><th>p99</th>\
         <th>p99.9</th><th>max</th><th>errors</th><th>mismatches</th><th>stale reads</th>\
         <th>upstream/req</th></tr></thead><tbody>\n"
        .to_owned();
    for target in &report.targets {
        let latency = &target.latency;
        let upstream = target.upstream.as_ref().map_or_else(
            || "not asked".to_owned(),
            |upstream| format!("{:.3}", upstream.commands_per_request),
        );
        let cells = [
            words::whole(target.requests_per_second),
            time(latency.p50_us),
            time(latency.p99_us),
            time(latency.p999_us),
            time(latency.max_us),
            words::whole(target.errors.count as f64),
            words::whole(target.mismatches.count as f64),
            words::whole(target.stale_reads as f64),
            upstream,
        ];
        let _ = write!(text, "<tr><th scope=\"row\">{}</th>", escaped(&target.name));
        for cell in cells {
            let _ = write!(text, "<td>{}</td>", escaped(&cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table>\n");
    text
}

fn details(target: &TargetReport) -> String {
    let (name, url) = (escaped(&target.name), escaped(&target.url));
    let mut text = format!("<section><h2>{name}</h2><p>{url}</p><ul>\n");
    let mut item = |line: &str| {
        let _ = writeln!(text, "<li>{}</li>", escaped(line));
    };
    item(&format!(
        "{} reads, {} writes, {} increments",
        words::whole(target.reads as f64),
        words::whole(target.writes as f64),
        words::whole(target.increments as f64)
    ));
    for remark in target.remarks() {
        item(&remark);
    }
    for round in &target.rounds {
        item(&format!(
            "round {}: {} requests/s, p50 {}, p99 {}",
            round.round + 1,
            words::whole(round.requests_per_second),
            time(round.p50_us),
            time(round.p99_us)
        ));
    }
    if let Some(upstream) = &target.upstream {
        let calls: Vec<String> =
            upstream.calls.iter().map(|(name, count)| format!("{name} {count}")).collect();
        item(&format!("upstream commands: {}", calls.join(", ")));
    }
    text.push_str("</ul></section>\n");
    text
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn nothing_from_outside_becomes_markup() {
        assert_eq!(escaped("<a href='\"'>&"), "&lt;a href=&#39;&quot;&#39;&gt;&amp;");
    }
}
