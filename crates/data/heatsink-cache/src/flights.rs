//! Flights: one upstream read serves every request that was waiting for it.
//!
//! Called by: the proxy, for reads of keys whose entry says so, in every mode that is at
//! least `exact`.
//! Bound: per identity one flight that is out and one that fills; [`FlightLimits`] for how
//! many flights, how many waiters, how long they wait.
//! Invariant: nobody joins a flight whose bytes have left, so nobody is given a value older
//! than the request; every waiter comes back exactly once.
//!
//! Waiters belong to the table, not to the request that came first: whoever leaves harms
//! nobody. In the steady state nothing is allocated: buffers of flights that ended are used
//! again, and waiters are handed out in a vector of the caller's.

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::identity::Reader;

/// Bounds of one worker's flights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightLimits {
    /// Flights at a time; a read beyond that is refused and goes alone.
    pub flights: usize,
    /// Waiters of one flight; as above.
    pub waiters: usize,
    /// Longest wait of a read.
    pub max_wait: Duration,
}

impl Default for FlightLimits {
    fn default() -> Self {
        Self { flights: 16_384, waiters: 65_536, max_wait: Duration::from_secs(1) }
    }
}

/// What a flight that ended may keep of its buffers, for the next.
const KEPT_BYTES: usize = 4096;
const KEPT_WAITERS: usize = 256;
/// Flights kept for later when there are none.
const KEPT_FLIGHTS: usize = 64;

/// One flight; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlightId {
    slot: u32,
    serial: u64,
}

/// What became of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined<W> {
    /// It is alone: hand its bytes to a link, and say [`Flights::sent`] when they leave.
    Send(FlightId),
    /// It is answered with that flight, and spared.
    Waiting(FlightId),
    /// The same, but it is the first that waits: that flight is sent for it, later.
    Next(FlightId),
    /// No room: the caller sends it on its own.
    Refused(W),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not in use; its buffers wait for the next.
    Free,
    /// Behind one that is out.
    Filling,
    /// Handed to the caller, not yet on its way.
    Open,
    /// On its way.
    Out,
}

#[derive(Debug)]
struct Flight<W> {
    serial: u64,
    state: State,
    /// No longer in the table: nobody joins it, nobody waits for its end.
    detached: bool,
    /// The flight that fills while this one is open or out.
    next: Option<u32>,
    hash: u64,
    reader: Reader,
    key: Vec<u8>,
    command: Vec<u8>,
    /// In the order in which they came, with the time of that.
    waiters: Vec<(W, Duration)>,
}

/// The flights of one worker; `W` says whom to answer.
#[derive(Debug)]
pub struct Flights<W> {
    limits: FlightLimits,
    slots: Vec<Flight<W>>,
    free: Vec<u32>,
    /// For each identity its first flight: the one that is open or out.
    table: HashTable<u32>,
    state: RandomState,
    serials: u64,
    /// Reads that joined a flight which was not their own.
    joined: u64,
    #[cfg(test)]
    pub(crate) planted_join_out: bool,
}

impl<W> Flights<W> {
    /// No flights.
    pub fn new(limits: FlightLimits) -> Self {
        Self {
            limits,
            slots: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            state: RandomState::default(),
            serials: 0,
            joined: 0,
            #[cfg(test)]
            planted_join_out: false,
        }
    }

    /// Other bounds; the longest wait also for those who wait already.
    pub fn set_limits(&mut self, limits: FlightLimits) {
        self.limits = limits;
    }

    /// A read wants an answer. `command` is the whole request; `key` is what
    /// [`Self::detach`] goes by.
    pub fn join(
        &mut self,
        now: Duration,
        reader: Reader,
        key: &[u8],
        command: &[u8],
        waiter: W,
    ) -> Joined<W> {
        let hash = self.hash(reader, command);
        let first = self
            .table
            .find(hash, |&slot| {
                let flight = &self.slots[slot as usize];
                flight.reader == reader && flight.command == command
            })
            .copied();
        let Some(first) = first else {
            let Some(slot) = self.start(State::Open, hash, reader, key, command) else {
                return Joined::Refused(waiter);
            };
            self.insert(slot);
            self.push(slot, now, waiter);
            return Joined::Send(self.id(slot));
        };
        // The race that this is about, with a write between:
        //   1. read A leaves              2. the server executes A
        //   3. write W is executed and answered
        //   4. read B arrives, after W: joined to A it would be given what W replaced.
        // So B waits for the flight after A.
        let slot = if self.is_joinable(first) {
            first
        } else if let Some(next) = self.slots[first as usize].next {
            next
        } else {
            let Some(next) = self.start(State::Filling, hash, reader, key, command) else {
                return Joined::Refused(waiter);
            };
            self.slots[first as usize].next = Some(next);
            self.push(next, now, waiter);
            return Joined::Next(self.id(next));
        };
        if self.slots[slot as usize].waiters.len() >= self.limits.waiters {
            return Joined::Refused(waiter);
        }
        self.joined += 1;
        self.push(slot, now, waiter);
        Joined::Waiting(self.id(slot))
    }

    /// The flight's bytes are about to leave: it is closed for joining.
    pub fn sent(&mut self, flight: FlightId) {
        if let Some(slot) = self.live(flight) {
            self.slots[slot as usize].state = State::Out;
        }
    }

    /// The flight was answered: its waiters are appended to `waiters`, and the flight behind
    /// it, if there is one, is to be sent now.
    ///
    /// Also for a flight that was not sent because its waiters can be answered otherwise.
    pub fn answered(&mut self, flight: FlightId, waiters: &mut Vec<W>) -> Option<FlightId> {
        let slot = self.live(flight)?;
        waiters.extend(self.slots[slot as usize].waiters.drain(..).map(|(waiter, _)| waiter));
        let next = self.slots[slot as usize].next.take();
        if !self.slots[slot as usize].detached {
            self.remove(slot);
        }
        self.release(slot);
        let next = next?;
        if self.slots[next as usize].waiters.is_empty() {
            self.release(next); // all of them have left
            return None;
        }
        self.slots[next as usize].state = State::Open;
        self.insert(next);
        Some(self.id(next))
    }

    /// The flight failed: the same as an answer, but `waiters` get the error.
    pub fn failed(&mut self, flight: FlightId, waiters: &mut Vec<W>) -> Option<FlightId> {
        self.answered(flight, waiters)
    }

    /// Appends those who have waited too long. Their flights go on; what is answered later
    /// goes to the rest.
    pub fn expired(&mut self, now: Duration, waiters: &mut Vec<W>) {
        let Some(since) = now.checked_sub(self.limits.max_wait) else { return };
        for flight in &mut self.slots {
            let late = flight.waiters.iter().take_while(|(_, came)| *came <= since).count();
            waiters.extend(flight.waiters.drain(..late).map(|(waiter, _)| waiter));
        }
    }

    /// Takes those out who have waited since then or longer and can be answered otherwise: `take` is
    /// told who reads and the request, and says whether it has an answer for that waiter. The rest
    /// wait on.
    pub fn take_waiting(
        &mut self,
        since: Duration,
        mut take: impl FnMut(Reader, &[u8], &W) -> bool,
        mut tell: impl FnMut(Reader, &[u8], W),
    ) {
        for Flight { reader, command, waiters, .. } in &mut self.slots {
            let late = waiters.iter().take_while(|(_, came)| *came <= since).count();
            for (waiter, _) in
                waiters.extract_if(..late, |(waiter, _)| take(*reader, command, waiter))
            {
                tell(*reader, command, waiter);
            }
        }
    }

    /// When [`Self::expired`] has something to do next.
    pub fn next_deadline(&self) -> Option<Duration> {
        let oldest = self.slots.iter().filter_map(|flight| flight.waiters.first());
        let oldest = oldest.map(|(_, came)| *came).min()?;
        Some(oldest.saturating_add(self.limits.max_wait))
    }

    /// The epoch of `key` was bumped: its flights serve those who joined already, later
    /// readers start anew and wait for none of them. Appends the flights to be sent now:
    /// those that were filling.
    pub fn detach(&mut self, key: &[u8], to_send: &mut Vec<FlightId>) {
        for slot in 0..self.slots.len() as u32 {
            let flight = &mut self.slots[slot as usize];
            let is_first = matches!(flight.state, State::Open | State::Out);
            if !is_first || flight.detached || flight.key != key {
                continue;
            }
            let next = flight.next.take();
            self.remove(slot);
            self.slots[slot as usize].detached = true;
            let Some(next) = next else { continue };
            if self.slots[next as usize].waiters.is_empty() {
                self.release(next); // all of them have left
                continue;
            }
            self.slots[next as usize].state = State::Open;
            self.slots[next as usize].detached = true;
            to_send.push(self.id(next));
        }
    }

    /// Forgets waiters that are gone; returns how many. Flights that nobody waits for any
    /// more go on, since they may be on their way.
    pub fn leave(&mut self, mut is_gone: impl FnMut(&W) -> bool) -> usize {
        let mut left = 0;
        for flight in &mut self.slots {
            let before = flight.waiters.len();
            flight.waiters.retain(|(waiter, _)| !is_gone(waiter));
            left += before - flight.waiters.len();
        }
        left
    }

    /// Who reads in that flight, which key, and the request to be sent.
    pub fn request(&self, flight: FlightId) -> Option<(Reader, &[u8], &[u8])> {
        let flight = &self.slots[self.live(flight)? as usize];
        Some((flight.reader, &flight.key, &flight.command))
    }

    /// Flights that are filling, open or out.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads that were spared by joining, since the start.
    pub fn joined(&self) -> u64 {
        self.joined
    }

    fn is_joinable(&self, slot: u32) -> bool {
        #[cfg(test)]
        if self.planted_join_out {
            return true;
        }
        self.slots[slot as usize].state == State::Open
    }

    fn hash(&self, reader: Reader, command: &[u8]) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write_u64(reader.tag());
        hasher.write(command);
        hasher.finish()
    }

    fn push(&mut self, slot: u32, now: Duration, waiter: W) {
        self.slots[slot as usize].waiters.push((waiter, now));
    }

    fn id(&self, slot: u32) -> FlightId {
        FlightId { slot, serial: self.slots[slot as usize].serial }
    }

    fn live(&self, id: FlightId) -> Option<u32> {
        let flight = self.slots.get(id.slot as usize)?;
        (flight.serial == id.serial && flight.state != State::Free).then_some(id.slot)
    }

    fn start(
        &mut self,
        state: State,
        hash: u64,
        reader: Reader,
        key: &[u8],
        command: &[u8],
    ) -> Option<u32> {
        if self.len() >= self.limits.flights {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Flight {
                serial: 0,
                state: State::Free,
                detached: false,
                next: None,
                hash,
                reader,
                key: Vec::new(),
                command: Vec::new(),
                waiters: Vec::new(),
            });
            self.slots.len() as u32 - 1
        });
        self.serials += 1;
        let flight = &mut self.slots[slot as usize];
        flight.serial = self.serials;
        flight.state = state;
        flight.detached = false;
        flight.hash = hash;
        flight.reader = reader;
        flight.key.extend_from_slice(key);
        flight.command.extend_from_slice(command);
        Some(slot)
    }

    fn release(&mut self, slot: u32) {
        let flight = &mut self.slots[slot as usize];
        flight.state = State::Free;
        flight.key.clear();
        flight.command.clear();
        flight.key.shrink_to(KEPT_BYTES);
        flight.command.shrink_to(KEPT_BYTES);
        flight.waiters.shrink_to(KEPT_WAITERS);
        self.free.push(slot);
        // After a peak, so that nothing has to look through flights of long ago.
        if self.is_empty() && self.slots.len() > KEPT_FLIGHTS {
            self.slots.truncate(KEPT_FLIGHTS);
            self.free.clear();
            self.free.extend((0..KEPT_FLIGHTS as u32).rev());
        }
    }

    fn insert(&mut self, slot: u32) {
        let Self { slots, table, .. } = self;
        let hash = slots[slot as usize].hash;
        table.insert_unique(hash, slot, |&other| slots[other as usize].hash);
    }

    fn remove(&mut self, slot: u32) {
        let hash = self.slots[slot as usize].hash;
        if let Ok(found) = self.table.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
    }
}
