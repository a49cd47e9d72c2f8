//! Whether the detector finds every hot key and accuses no other.
//!
//! Called by: `detect`.
//! Bound: the seeded runs of the effort, six and three seconds of virtual time each.
//! Invariant: every report of every tick is compared with exact counts of the same window; a
//! run that fails is named by its seed.

use super::Effort;
use super::rig::{Rig, THRESHOLD, TICKS_PER_SECOND, is_onset};
use super::stream::{Name, Zipf};
use crate::section::{Goal, Section};

const ZIPF_PER_SECOND: usize = 30_000;
const UNIFORM_PER_SECOND: usize = 200_000;

/// What was seen in all runs.
#[derive(Default)]
struct Tally {
    /// Keys at the threshold or over it, at each tick.
    due: u64,
    /// Those of them that the tick's report did not name.
    missing: u64,
    /// Keys that a report named.
    reported: u64,
    /// Those of them below half of the threshold.
    accused: u64,
    /// Runs whose rising key was not said to have become hot.
    late: u64,
    /// Events of keys that became hot though nothing should.
    alarms: u64,
    /// The sample that measures the sketch found an estimate below the truth.
    underestimates: u64,
    /// The seeds of the runs in which anything was wrong.
    failed: Vec<u64>,
}

impl Tally {
    fn faults(&self) -> u64 {
        self.missing + self.accused + self.late + self.alarms + self.underestimates
    }

    /// Runs `run` with every seed and keeps those that add a fault.
    fn over(runs: u64, run: impl Fn(u64, &mut Self)) -> Self {
        let mut tally = Self::default();
        for seed in 1..=runs {
            let before = tally.faults();
            run(seed, &mut tally);
            if tally.faults() > before {
                tally.failed.push(seed);
            }
        }
        tally
    }

    /// Lets the tick pass and compares its report; whether `rising` became hot with it.
    fn tick(&mut self, rig: &mut Rig, rising: Option<usize>) -> bool {
        let (report, events) = rig.tick();
        let reported: Vec<u64> =
            report.above(f64::from(THRESHOLD)).filter_map(|heat| Name::number(&heat.key)).collect();
        self.reported += reported.len() as u64;
        let accused = reported.iter().filter(|key| rig.exact(**key) < THRESHOLD / 2);
        self.accused += accused.count() as u64;
        for key in rig.due() {
            self.due += 1;
            self.missing += u64::from(!reported.contains(&key));
        }
        self.underestimates += report.truth.underestimates;
        let Some(rising) = rising else {
            self.alarms += events.len() as u64;
            return false;
        };
        events.iter().any(|event| is_onset(event, rising))
    }
}

/// All runs.
pub(crate) fn runs(effort: &Effort) -> Section {
    let zipf = Zipf::new(effort.keys);
    let skewed = Tally::over(effort.runs, |seed, tally| skewed(effort, &zipf, seed, tally));
    let uniform = Tally::over(effort.runs, |seed, tally| uniform(effort, seed, tally));
    let mut section = Section::new(
        "Accuracy",
        "stream",
        &[
            "runs",
            "keys due at ticks",
            "missing",
            "reported at ticks",
            "below half",
            "failed seeds",
        ],
    );
    section.notes = vec![
        format!(
            "Zipf 0.99 over {} keys at {ZIPF_PER_SECOND} requests/s for six seconds, with one key \
             that goes from nothing to twice the threshold of {THRESHOLD}: at once in runs with an \
             even seed, over four seconds in the others; uniform: {UNIFORM_PER_SECOND} requests/s \
             for three seconds",
            effort.keys
        ),
        format!(
            "in every run, a scan of {} keys between; every tick's report against exact counts",
            effort.scanned_keys
        ),
    ];
    for (name, tally) in [("Zipf, one key rising", &skewed), ("uniform", &uniform)] {
        let counts = [effort.runs, tally.due, tally.missing, tally.reported, tally.accused];
        let cells = counts.iter().map(u64::to_string);
        section.row(name, cells.chain([format!("{:?}", tally.failed)]));
    }
    let recall = 100.0 * (skewed.due - skewed.missing) as f64 / skewed.due.max(1) as f64;
    let goal = |what, limit: &str, figure, reached| {
        section.goals.push(Goal { what, limit: limit.to_owned(), figure, reached: Some(reached) });
    };
    let mut goal = goal;
    goal(
        "recall, Zipf and scan",
        "100 %",
        format!("{recall} %, {} runs without onset", skewed.late),
        skewed.due > 0 && skewed.missing == 0 && skewed.late == 0,
    );
    goal(
        "reported below half of the threshold",
        "0",
        skewed.accused.to_string(),
        skewed.accused == 0,
    );
    goal(
        "reported in uniform traffic with a scan",
        "0",
        (uniform.reported + uniform.alarms).to_string(),
        uniform.reported + uniform.alarms == 0,
    );
    let underestimates = skewed.underestimates + uniform.underestimates;
    goal("estimates below the truth", "0", underestimates.to_string(), underestimates == 0);
    section
}

fn skewed(effort: &Effort, zipf: &Zipf, seed: u64, tally: &mut Tally) {
    let rising = effort.keys;
    let mut rig = Rig::new(effort.keys + 1, seed);
    let mut found = false;
    for tick in 0..6 * TICKS_PER_SECOND {
        for _ in 0..ZIPF_PER_SECOND / TICKS_PER_SECOND {
            let key = zipf.draw(&mut rig.random);
            rig.request(key);
        }
        let ramp = match seed % 2 {
            0 if tick < TICKS_PER_SECOND => 0,
            0 => 80,
            _ => tick.min(80),
        };
        let rate = 2 * THRESHOLD as usize * ramp / 80;
        (0..rate / TICKS_PER_SECOND).for_each(|_| rig.request(rising));
        if (40..80).contains(&tick) {
            rig.scan(effort.scanned_keys / 40);
        }
        found |= tally.tick(&mut rig, Some(rising));
    }
    tally.late += u64::from(!found);
}

fn uniform(effort: &Effort, seed: u64, tally: &mut Tally) {
    let mut rig = Rig::new(effort.uniform_keys, seed);
    for tick in 0..3 * TICKS_PER_SECOND {
        for _ in 0..UNIFORM_PER_SECOND / TICKS_PER_SECOND {
            let key = rig.random.usize(..effort.uniform_keys);
            rig.request(key);
        }
        if (20..40).contains(&tick) {
            rig.scan(effort.scanned_keys / 20);
        }
        tally.tick(&mut rig, None);
    }
}
