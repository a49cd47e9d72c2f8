//! What goes wrong while a history is recorded.
//!
//! Called by: `exact`, in every second history.
//! Bound: a fault is over before the last quarter of the operations begins.
//! Invariant: what a server has acknowledged survives its end: it writes to disk first.

use std::thread;
use std::time::Duration;

use fastrand::Rng;
use heatsink_testkit::{RedisServer, Reply};

use crate::fleet::Fleet;
use crate::recorder::Session;

/// So long that an impatient proxy notices, even if it was idle before.
const LONG: Duration = Duration::from_millis(1200);

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The server stands still for a while; some proxies give it up meanwhile, and what it has
    /// received by then is executed later.
    Pause,
    /// The server is killed, and started with what it has written down.
    Kill,
    /// The server closes the proxies' connections.
    Cut,
    /// Clients close theirs; see [`crate::workload::Workload::hangs_up`].
    HangUp,
    /// A proxy ends, another takes its place.
    Replace,
    /// What proxies do for hot keys is switched on and off.
    Toggle,
}

impl Fault {
    pub(crate) const ALL: [Self; 6] =
        [Self::Pause, Self::Kill, Self::Cut, Self::HangUp, Self::Replace, Self::Toggle];

    /// Does it, and waits until it is over.
    pub(crate) fn happen(
        self,
        server: &mut RedisServer,
        fleet: &mut Fleet,
        session: &Session,
        rng: &mut Rng,
    ) {
        if self == Self::Toggle {
            return toggle(fleet, session, rng);
        }
        session.wait_for_percent(rng.usize(10..50));
        let switched = rng.bool().then(|| rng.usize(..fleet.len()));
        if let Some(index) = switched {
            fleet.switch(index, false);
        }
        match self {
            Self::Pause => {
                let is_long = rng.u8(..4) == 0;
                server.pause();
                thread::sleep(if is_long { LONG } else { Duration::from_millis(rng.u64(5..150)) });
                server.resume();
            }
            Self::Kill => {
                server.kill();
                server.start_again();
            }
            Self::Cut => {
                for _ in 0..rng.usize(1..=2) {
                    let reply = server.client().command(&["CLIENT", "KILL", "TYPE", "normal"]);
                    assert!(matches!(reply, Reply::Integer(_)), "{reply}");
                    session.wait_for_percent(rng.usize(50..65));
                }
            }
            Self::Replace => {
                let index = rng.usize(..fleet.len());
                session.move_door(index, fleet.replace(index));
            }
            Self::HangUp | Self::Toggle => {}
        }
        if let Some(index) = switched {
            fleet.switch(index, true);
        }
    }
}

fn toggle(fleet: &Fleet, session: &Session, rng: &mut Rng) {
    let mut is_on = vec![true; fleet.len()];
    for percent in (0..70).step_by(rng.usize(2..=8)) {
        session.wait_for_percent(percent);
        let index = rng.usize(..fleet.len());
        is_on[index] = !is_on[index];
        fleet.switch(index, is_on[index]);
    }
    (0..fleet.len()).for_each(|index| fleet.switch(index, true));
}
