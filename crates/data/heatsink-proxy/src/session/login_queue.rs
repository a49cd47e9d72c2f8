//! Which client may try a login, and when, before the server is asked.
//!
//! A login that already has a pool on this worker, accepted or being tried, costs the server no
//! connection and is no guess; nor is a login that another worker uses. For any other login a connection
//! is opened just to try it, so two things are bounded: logins that are tried at a time, and refused
//! logins of one address (see [`crate::session::login_attempts`]). A login that was refused a moment ago
//! is not tried again at once, and does not count as another guess: after a password was changed, the old
//! one fails for many clients. A client that exceeds a bound waits, and is refused in the end. So it is
//! wherever a login is said: also on a connection of the client's own, where it opens none.
//!
//! Where a user needs no password, every password is a login that is accepted. Beyond
//! [`MAX_PASSWORDS`] of them the server is asked whether that is so; then they share one pool:
//!
//! ```text
//! client: AUTH u p5        -> a pool for (u, p5), because there is none
//! server: OK                  its own password is accepted, as for every pool
//! worker: AUTH u ANY       -> on the connection of that pool, which is u's in any case
//! server: OK                  any password is: the client goes to the pool of (u, ANY)
//! client: AUTH u p6        -> asked on the pool of (u, ANY); no new connection
//! ```
//!
//! On a cluster another node may need a password, so nothing is shared there; beyond that number,
//! pools that nobody is in are given up at once.
//!
//! Invariant: a client enters a pool only after the server has accepted the client's own
//! credentials for that user. The connections of (u, ANY) are opened with a password that nobody
//! gave, so each server accepts them only as long as it needs none; once one is refused, those who
//! share the pool are disconnected, and log in anew.
//!
//! Called by: `switch` and `service_auth`, for `AUTH`, `HELLO` and `SELECT`; `dedicated_link`, for the first
//! two.
//! Bound: [`MAX_UNPROVEN`] pools that are being tried, [`MAX_WAITING`] clients that wait for their
//! turn, [`MAX_WAIT`] each, [`MAX_REFUSED`] logins that are remembered.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use heatsink_upstream::Login;
use heatsink_upstream::address::Credentials;

use crate::downstream::connection::ClientKey;
use crate::relay::Relay;
use crate::session::Sessions;
use crate::upstream;
use crate::upstream::pools::Pool;

/// Pools of a worker that have a connection, and that no server has accepted yet.
const MAX_UNPROVEN: usize = 64;
/// Clients of a worker that wait to try a login.
const MAX_WAITING: usize = 256;
/// How long each of them waits.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Time between two looks at whose turn it is.
const LOOK: Duration = Duration::from_millis(100);
/// Refused logins of a worker that are remembered, and how long they are not tried again.
const MAX_REFUSED: usize = 32;
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// Passwords of one user, database and protocol that have a pool each.
const MAX_PASSWORDS: usize = 4;
/// A password that nobody has.
const ANY_PASSWORD: &[u8] = b"heatsink: this user needs no password";

const REFUSED: &str = "ERR heatsink: too many logins or databases that were refused have been tried \
                       from this address, try again later";

/// Logins of a worker that wait, or were refused.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    /// Until when each client waits at most, the first to come first.
    waiting: Vec<(ClientKey, Instant)>,
    /// Hashes of logins that were refused, and when they were last tried.
    refused: VecDeque<(u64, Instant)>,
    hasher: RandomState,
}

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tried {
    /// Of credentials, or of a database and protocol with a client's own credentials.
    hash: u64,
    /// It counts among the attempts of its address.
    counts: bool,
}

/// What a client wants to try.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    /// Whether the server lets it in like this.
    Login(&'a Login),
    /// Whether the users file does, by user and password.
    Password(&'a [u8], &'a [u8]),
}

/// Whether it is a client's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is. [`Sessions::login_refused`] or [`Sessions::login_not_refused`] is to be told.
    Now(Tried),
    /// It comes later: the request stays where it is.
    Later,
    /// It does not come. The client was told.
    Never,
}

impl Sessions<'_> {
    /// Whether a client may try what it wants now.
    pub(in crate::session) fn login_turn(&mut self, key: ClientKey, wanted: Wanted<'_>) -> Turn {
        let Some(client) = self.relay.clients.get_ref(key) else { return Turn::Never };
        let hasher = &self.room.logins.hasher;
        let hash = match wanted {
            Wanted::Login(login)
                if login.credentials
                    == self.relay.upstream.pools[client.pool].login.credentials =>
            {
                hasher.hash_one((login.db, login.protocol))
            }
            Wanted::Login(login) => hasher.hash_one(&login.credentials),
            Wanted::Password(user, password) => hasher.hash_one((user, password)),
        };
        let may_try = self.may_try_login(key, wanted, hash);
        let waiting = &mut self.room.logins.waiting;
        let place = waiting.iter().position(|(waiter, _)| *waiter == key);
        match (may_try, place) {
            (Ok(counts), place) => {
                place.map(|place| waiting.remove(place));
                return Turn::Now(Tried { hash, counts });
            }
            (Err(_), Some(place)) if self.relay.now >= waiting[place].1 => {
                waiting.remove(place);
            }
            (Err(_), None) if waiting.len() >= MAX_WAITING => {}
            (Err(next), place) => {
                if place.is_none() {
                    waiting.push((key, self.relay.now + MAX_WAIT));
                }
                self.relay.next_tick = self.relay.next_tick.min(next.max(self.relay.now + LOOK));
                return Turn::Later;
            }
        }
        self.relay.clients.error(key, REFUSED);
        Turn::Never
    }

    /// Whether something may be tried, and if so, whether it counts; else when at the earliest.
    fn may_try_login(
        &mut self,
        key: ClientKey,
        wanted: Wanted<'_>,
        hash: u64,
    ) -> Result<bool, Instant> {
        let Some(client) = self.relay.clients.get_ref(key) else { return Ok(false) };
        if let Wanted::Login(login) = wanted {
            let pool = self.relay.upstream.pool_that_can_tell(login);
            let is_here = pool.is_some_and(|pool| self.relay.upstream.pools[pool].login == *login);
            if client.within || is_here || self.is_proven_anywhere(login) {
                return Ok(false);
            }
            let is_tried = |(_, pool): &(usize, &Pool)| !pool.is_proven && pool.is_connected();
            if pool.is_none()
                && self.relay.upstream.pools.iter().filter(is_tried).count() >= MAX_UNPROVEN
            {
                return Err(self.relay.now + LOOK);
            }
        }
        let now = self.relay.now;
        let mut refused = self.room.logins.refused.iter_mut();
        let refused = refused.find(|(other, _)| *other == hash);
        if let Some(again) = refused.as_ref().map(|(_, at)| *at + TRY_AGAIN).filter(|at| now < *at)
        {
            return Err(again);
        }
        let attempts = self.relay.shared.attempts.lock();
        let mut attempts = attempts.unwrap_or_else(PoisonError::into_inner);
        let address = client.record.addr.ip();
        attempts.may_try(address, now)?;
        if let Some((_, at)) = refused {
            // One at a time, and it has counted.
            *at = now;
            return Ok(false);
        }
        attempts.tried(address, now);
        Ok(true)
    }

    fn is_proven_anywhere(&self, login: &Login) -> bool {
        let proven = self.relay.shared.proven.lock().unwrap_or_else(PoisonError::into_inner);
        proven.contains_key(login)
    }

    /// Notes that what a client tried was refused.
    pub(in crate::session) fn login_refused(&mut self, key: ClientKey, tried: Tried) {
        let refused = &mut self.room.logins.refused;
        if let Some((_, at)) = refused.iter_mut().find(|(other, _)| *other == tried.hash) {
            *at = self.relay.now;
            // Others tried the same at the same time.
            self.login_not_refused(key, tried);
            return;
        }
        if refused.len() >= MAX_REFUSED {
            refused.pop_front();
        }
        refused.push_back((tried.hash, self.relay.now));
    }

    /// Notes that what a client tried was accepted, or that nobody has answered.
    pub(in crate::session) fn login_not_refused(&mut self, key: ClientKey, tried: Tried) {
        if let Some(client) = self.relay.clients.get_ref(key)
            && tried.counts
        {
            let attempts = self.relay.shared.attempts.lock();
            let mut attempts = attempts.unwrap_or_else(PoisonError::into_inner);
            attempts.take_back(client.record.addr.ip(), self.relay.now);
            if !self.room.logins.waiting.is_empty() {
                self.relay.next_tick = self.relay.now;
            }
        }
    }

    /// Has the clients that wait for their turn look again.
    pub(crate) fn look_after_logins(&mut self) {
        let Relay { clients, now, .. } = &mut *self.relay;
        let logins = &mut self.room.logins;
        // Some have gone, or were let in another way meanwhile.
        logins.waiting.retain(|(key, until)| {
            *now < *until + 10 * LOOK && clients.get_ref(*key).is_some_and(|client| client.stopped)
        });
        clients.resume.extend(logins.waiting.iter().map(|(key, _)| *key));
    }

    /// What to ask the server about the user of a pool that has just been accepted, if it has so
    /// many pools that any password may do. Not on a cluster, where another node may need one.
    pub(in crate::session) fn question_of_any(&self, pool: usize) -> Option<[&[u8]; 3]> {
        let Credentials { user, password } =
            self.relay.upstream.pools[pool].login.credentials.as_ref()?;
        let is_asked = self.relay.cluster.view.is_none()
            && password != ANY_PASSWORD
            && self.relay.upstream.siblings(pool).count() > MAX_PASSWORDS;
        is_asked.then_some([b"AUTH", user.as_deref()?, ANY_PASSWORD])
    }

    /// On a cluster, pools that nobody is in are given up where a user has too many.
    pub(in crate::session) fn shed_siblings(&mut self, pool: usize) {
        if self.relay.cluster.view.is_some()
            && self.relay.upstream.siblings(pool).count() > MAX_PASSWORDS
        {
            let is_idle = |(slot, other): &(usize, &Pool)| {
                other.clients == 0 && *slot != self.relay.upstream.base_pool
            };
            let idle = self.relay.upstream.siblings(pool).filter(is_idle);
            let idle: Vec<_> = idle.map(|(slot, other)| (slot, other.serial)).collect();
            self.relay.upstream.surplus_pools.extend(idle);
        }
    }

    /// The server refuses the password of a pool. If it was any password's, the user needs one now, and
    /// nobody here knows which client gave the right one: they have to say it again.
    pub(crate) fn leave_shared_pool(&mut self, pool: usize) {
        let credentials = self.relay.upstream.pools[pool].login.credentials.as_ref();
        if credentials.is_none_or(|credentials| credentials.password != ANY_PASSWORD) {
            return;
        }
        let is_here =
            |slot: &usize| self.relay.clients.slab.get(*slot).is_some_and(|c| c.pool == pool);
        let slots = (0..self.relay.clients.slab.capacity()).filter(is_here);
        let keys: Vec<_> = slots.filter_map(|slot| self.relay.clients.key(slot)).collect();
        for key in keys {
            self.relay.clients.close_after_replies(key);
        }
    }

    /// Any password does for the user of this pool, says the server: the pool that they share, which
    /// a client enters that leaves this one.
    pub(in crate::session) fn enter_shared_pool(&mut self, pool: usize) -> usize {
        let login = with_any_password(&self.relay.upstream.pools[pool].login);
        let Some(shared) = login.and_then(|login| self.relay.links().pool_for(&login)) else {
            return pool;
        };
        self.relay.links().set_proven(shared, true);
        self.relay.upstream.enter_pool(shared);
        self.relay.upstream.leave_pool(self.relay.now, pool);
        if self.relay.upstream.pools[pool].clients == 0 {
            // Not at once: its connection is being read from.
            self.relay.upstream.surplus_pools.push((pool, self.relay.upstream.pools[pool].serial));
        }
        shared
    }
}

impl upstream::Room {
    /// The pool that the server can be asked on about a login: its own, or the one that all
    /// passwords of its user share.
    pub(in crate::session) fn pool_that_can_tell(&self, login: &Login) -> Option<usize> {
        self.find_pool(login).or_else(|| {
            let shared = self.find_pool(&with_any_password(login)?)?;
            self.pools[shared].is_proven.then_some(shared)
        })
    }

    /// The pools of the same user, database and protocol, itself included, that were accepted: not
    /// those that somebody is just guessing.
    pub(in crate::session) fn siblings(&self, pool: usize) -> impl Iterator<Item = (usize, &Pool)> {
        let login = &self.pools[pool].login;
        self.pools.iter().filter(move |(_, other)| {
            let same = other.login.db == login.db && other.login.protocol == login.protocol;
            other.is_proven && same && is_same_user(&other.login, login)
        })
    }
}

fn is_same_user(one: &Login, other: &Login) -> bool {
    match (&one.credentials, &other.credentials) {
        (Some(one), Some(other)) => one.user == other.user,
        (one, other) => one == other,
    }
}

fn with_any_password(login: &Login) -> Option<Login> {
    let user = login.credentials.as_ref()?.user.clone()?;
    let credentials = Credentials { user: Some(user), password: ANY_PASSWORD.to_vec() };
    Some(Login { credentials: Some(credentials), ..login.clone() })
}
