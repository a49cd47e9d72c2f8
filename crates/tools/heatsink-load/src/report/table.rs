//! A report as text: a table, and below it what needs words.

use std::fmt::{self, Write};

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use heatsink_control::words;

use super::{Report, TargetReport};

impl Report {
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        let header = [
            "target",
            "req/s",
            "p50",
            "p99",
            "p99.9",
            "max",
            "errors",
            "mismatches",
            "stale",
            "upstream/req",
        ];
        table.set_header(header);
        for target in &self.targets {
            let latency = &target.latency;
            let per_request = target.upstream.as_ref().map_or_else(
                || "-".to_owned(),
                |upstream| format!("{:.3}", upstream.commands_per_request),
            );
            table.add_row([
                target.name.clone(),
                words::whole(target.requests_per_second),
                time(latency.p50_us),
                time(latency.p99_us),
                time(latency.p999_us),
                time(latency.max_us),
                words::whole(target.errors.count as f64),
                words::whole(target.mismatches.count as f64),
                words::whole(target.stale_reads as f64),
                per_request,
            ]);
        }
        for column in 1..header.len() {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

/// The table, and below it what needs words.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.table())?;
        for target in &self.targets {
            for remark in target.remarks() {
                write!(f, "\n{}: {remark}", target.name)?;
            }
        }
        let settings = &self.settings;
        let pace = match settings.rate_per_second {
            Some(rate) => format!("{} req/s, times from when due", words::whole(rate)),
            None => "as fast as possible".to_owned(),
        };
        write!(
            f,
            "\n{}, seed {}, {} connections, {pace}, {} s in {}",
            settings.scenario,
            settings.seed,
            settings.connections,
            settings.round_ms as f64 * f64::from(settings.rounds) / 1000.0,
            words::count(settings.rounds as usize, "round", "rounds"),
        )?;
        if self.stopped {
            f.write_str(", stopped before the end")?;
        }
        Ok(())
    }
}

impl TargetReport {
    /// What the figures alone do not say.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.mismatches.count > 0 {
            let mut text = "MISMATCHES:".to_owned();
            for (kind, count) in &self.mismatches.kinds {
                let _ = write!(text, " {kind} {count};");
            }
            remarks.push(text);
            remarks.extend(self.mismatches.examples.iter().map(|example| format!("  {example}")));
        }
        if let Some(first) = self.errors.examples.first() {
            remarks.push(format!("{} errors, the first: {first}", self.errors.count));
        }
        if self.unsent > 0 {
            remarks.push(format!("{} requests were due and could not be sent", self.unsent));
        }
        if self.misses > 0 {
            let (misses, recomputations) = (self.misses, self.recomputations);
            remarks.push(format!("{misses} misses led to {recomputations} recomputations"));
        }
        if self.sold + self.sold_out > 0 {
            remarks.push(format!("{} sold, {} came too late", self.sold, self.sold_out));
        }
        remarks
    }
}

/// A time as people read it.
pub(super) fn time(us: f64) -> String {
    match us {
        _ if us < 1_000.0 => format!("{us:.0} µs"),
        _ if us < 100_000.0 => format!("{:.1} ms", us / 1_000.0),
        _ if us < 1_000_000.0 => format!("{:.0} ms", us / 1_000.0),
        _ => format!("{:.1} s", us / 1_000_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        let pairs =
            [(12.4, "12 µs"), (1_234.0, "1.2 ms"), (250_000.0, "250 ms"), (2_500_000.0, "2.5 s")];
        for (us, text) in pairs {
            assert_eq!(time(us), text);
        }
    }
}
