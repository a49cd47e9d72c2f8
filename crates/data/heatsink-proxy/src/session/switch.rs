//! Commands that change who a client is: `AUTH`, `HELLO`, `SELECT`, `RESET`.
//!
//! They move the client to another pool, and the server decides whether it may: the command is sent along
//! a link of that pool, whose connections were opened with exactly these credentials, database and
//! protocol, and the client moves only if the command succeeds.
//! Invariant: a client is in a pool only after the server accepted the client's own credentials for it.
//! And no password is sent behind unanswered requests, because servers from Redis 7.2 on, and Valkey, do
//! not answer a wrong one there (`addAuthErrReply`):
//!
//! ```text
//! others: GET a, GET b     C: AUTH app old-password     others: GET c      on one connection
//! server: a, b             nothing                      c
//! told:   a, b             c, to C                      what comes next, to each the next one's
//! ```

use heatsink_resp::encode;
use heatsink_upstream::address::Credentials;
use heatsink_upstream::{Login, Protocol};

use crate::downstream::connection::{ClientKey, Lost, Replies};
use crate::downstream::request::{Flow, Request, spans};
use crate::session::Sessions;
use crate::session::client_command::Answer;
use crate::session::client_tracking::Redirected;
use crate::session::login_queue::{Tried, Turn, Wanted};
use crate::session::service_auth::{Attempt, Verification};
use crate::upstream::links::Failure;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

/// What happens when the server has agreed.
#[derive(Debug)]
pub(crate) enum Session {
    /// The client moves to this pool.
    Move(Move),
    /// The client gets an answer made here.
    Answer(Answer),
    /// The client has logged in from then on.
    Verify(Verification),
    /// It waits for another client's connection.
    Redirected(Redirected),
    /// The server has agreed with this reply that the client moves. To which pool depends on whether the user
    /// accepts any password.
    Share(Move, Vec<u8>),
}

/// A move to another pool.
#[derive(Debug)]
pub(crate) struct Move {
    pool: usize,
    /// `HELLO … SETNAME`
    name: Option<Vec<u8>>,
    hello: bool,
    /// What the answer is noted for.
    tried: Option<Tried>,
}

impl Session {
    /// What the answer is noted for.
    fn tried(&self) -> Option<Tried> {
        match self {
            Self::Move(to) | Self::Share(to, _) => to.tried,
            Self::Answer(_) | Self::Verify(_) | Self::Redirected(_) => None,
        }
    }
}

/// Whether a request that moves a client is `AUTH`, or `HELLO` with it. What is not sent as an array is not
/// looked into.
fn may_say_a_password(bytes: &[u8]) -> bool {
    let Some(args) = spans(bytes) else { return true };
    let is_auth = |at: usize| {
        args.get(at).is_some_and(|arg| bytes[arg.clone()].eq_ignore_ascii_case(b"auth"))
    };
    is_auth(0) || is_auth(2)
}

impl Sessions<'_> {
    fn login_of(&self, key: ClientKey) -> Option<Login> {
        let client = self.relay.clients.get_ref(key)?;
        Some(self.relay.upstream.pools[client.pool].login.clone())
    }

    pub(crate) fn auth(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        let Some(credentials) = credentials_of_auth(request) else {
            // Refused by the server without an effect.
            return self.relay.routing().forward(key, request.bytes);
        };
        if self.relay.shared.verifier.is_some() {
            let attempt = Attempt { login: None, name: None, hello: Vec::new() };
            return self.verify(key, credentials.user_name(), &credentials.password, attempt);
        }
        let Some(login) = self.login_of(key) else { return Flow::Taken };
        let login = Login { credentials: Some(credentials), ..login };
        self.try_move(key, &login, request.bytes, None, false)
    }

    /// Whether it is the turn of a login that is said where it does not move its client. None if no login
    /// is said.
    pub(in crate::session) fn stray_login(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
    ) -> Option<Turn> {
        let credentials = if request.is(0, "auth") {
            credentials_of_auth(request)
        } else if request.is(0, "hello") && matches!(request.arg(1), Some(b"2" | b"3")) {
            match Greeting::of(request) {
                Ok(greeting) => greeting.credentials,
                Err(text) => {
                    self.relay.clients.error(key, &text);
                    return Some(Turn::Never);
                }
            }
        } else {
            None
        };
        let login = Login { credentials: Some(credentials?), ..self.login_of(key)? };
        Some(self.login_turn(key, Wanted::Login(&login)))
    }

    pub(crate) fn select(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        let db = request.arg(1).and_then(|arg| {
            let text = std::str::from_utf8(arg).ok()?;
            let db: u32 = text.parse().ok()?;
            // As strict as the server: what it refuses is left to it to refuse.
            (db.to_string() == text && i32::try_from(db).is_ok()).then_some(db)
        });
        match (db, self.login_of(key)) {
            (Some(db), Some(login)) if request.len() == 2 => {
                self.try_move(key, &Login { db, ..login }, request.bytes, None, false)
            }
            _ => self.relay.routing().forward(key, request.bytes),
        }
    }

    pub(crate) fn hello(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        let Some(mut login) = self.login_of(key) else { return Flow::Taken };
        match request.arg(1) {
            None => {}
            Some(b"2") => login.protocol = Protocol::Resp2,
            Some(b"3") => login.protocol = Protocol::Resp3,
            // Refused by the server before it looks at anything else.
            Some(_) => return self.relay.routing().forward(key, request.bytes),
        }
        let Greeting { credentials, name } = match Greeting::of(request) {
            Ok(greeting) => greeting,
            // Some servers authenticate before they find the mistake: not on a connection that
            // others use.
            Err(text) => {
                self.relay.clients.error(key, &text);
                return Flow::Taken;
            }
        };
        // Without the name: the connection is shared, and the name is the client's.
        let mut bytes = Vec::new();
        let mut args = vec![&b"HELLO"[..]];
        args.extend(request.arg(1));
        if self.relay.shared.verifier.is_some() {
            encode::command(&mut bytes, &args);
            return self.hello_service(key, login, credentials, name, bytes);
        }
        if let Some(credentials) = &credentials {
            args.extend([&b"AUTH"[..], credentials.user_name(), &credentials.password]);
        }
        encode::command(&mut bytes, &args);
        if credentials.is_some() {
            login.credentials = credentials;
        }
        self.try_move(key, &login, &bytes, name, true)
    }

    /// Back to how a connection begins.
    pub(crate) fn reset(&mut self, key: ClientKey) {
        let base_pool = self.relay.upstream.base_pool;
        let known = self.relay.shared.verifier.is_none();
        let Some(client) = self.relay.clients.get(key) else { return };
        let (old, dedicated) = (client.pool, client.dedicated.take());
        client.pool = base_pool;
        client.lost = Lost::Nothing;
        client.transaction = None;
        client.is_known = known;
        client.record.set_upstream_id(None);
        {
            let mut facts = client.record.facts();
            facts.name.clear();
            facts.subscriber = false;
            facts.in_transaction = false;
        }
        self.relay.upstream.enter_pool(base_pool);
        self.relay.upstream.leave_pool(self.relay.now, old);
        if let Some(dedicated) = dedicated {
            self.drop_dedicated_links(key, &dedicated);
        }
        self.note_login(key);
        self.relay.clients.set_replies(key, Replies::On);
        self.relay.clients.reply(key, b"+RESET\r\n");
    }

    /// Has a client try another login when it is its turn.
    pub(in crate::session) fn try_move(
        &mut self,
        key: ClientKey,
        login: &Login,
        bytes: &[u8],
        name: Option<Vec<u8>>,
        hello: bool,
    ) -> Flow {
        let tried = match self.login_turn(key, Wanted::Login(login)) {
            Turn::Now(tried) => tried,
            Turn::Later => return Flow::Wait,
            Turn::Never => return Flow::Taken,
        };
        self.begin_move(key, login, bytes, name, hello, Some(tried));
        Flow::Taken
    }

    /// Asks the server whether a client may move; its answer is noted for `tried`.
    pub(crate) fn begin_move(
        &mut self,
        key: ClientKey,
        login: &Login,
        bytes: &[u8],
        name: Option<Vec<u8>>,
        hello: bool,
        tried: Option<Tried>,
    ) {
        let pool = self
            .relay
            .upstream
            .pool_that_can_tell(login)
            .or_else(|| self.relay.links().pool_for(login));
        let Some(pool) = pool else {
            self.session_not_refused(key, tried);
            self.relay.clients.error(key, "ERR heatsink: too many different logins at once");
            return;
        };
        self.relay.upstream.enter_pool(pool);
        self.ask(key, pool, bytes, Session::Move(Move { pool, name, hello, tried }));
    }

    /// Asks the server on a pool's shared link; what it says decides about `switch`.
    pub(crate) fn ask(&mut self, key: ClientKey, pool: usize, bytes: &[u8], session: Session) {
        let node = self.relay.home(key);
        let link = if matches!(session, Session::Move(_)) && may_say_a_password(bytes) {
            self.link_for_password(key, pool, node)
        } else {
            self.relay.links().link_for(key, pool, node)
        };
        match link {
            Ok(link) => {
                let Some((client, buffers)) = self.relay.clients.get_with_buffers(key) else {
                    return;
                };
                client.stopped = true;
                client.session = Some(Box::new(session));
                let seq = client.order.reserve(buffers);
                let ticket = Ticket { client: key, seq, purpose: Purpose::Session };
                self.relay.upstream.push_to_link(self.relay.now, link, bytes, ticket);
            }
            Err(why) => {
                self.session_not_refused(key, session.tried());
                self.forget_session(&session);
                self.relay.clients.error(key, &why);
            }
        }
    }

    /// A link on which the server owes no reply.
    fn link_for_password(
        &mut self,
        key: ClientKey,
        pool: usize,
        node: NodeId,
    ) -> Result<usize, String> {
        let link = self.relay.links().link_for(key, pool, node)?;
        let owes = self.relay.upstream.links.get(link).is_some_and(|it| it.link.waiting() > 0);
        if owes { self.relay.links().link_apart(pool, node) } else { Ok(link) }
    }

    /// The server has answered; `frame` is its reply.
    pub(crate) fn session_answered(&mut self, ticket: Ticket, frame: &[u8]) {
        let key = ticket.client;
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(session) = client.session.take() else { return };
        let is_refused = frame.first() == Some(&b'-');
        match *session {
            Session::Share(mut to, reply) => {
                if !is_refused {
                    to.pool = self.enter_shared_pool(to.pool);
                }
                self.complete_move(key, to, &reply);
            }
            session if is_refused => {
                self.relay.clients.reply(key, frame);
                self.session_refused(key, session.tried());
                self.forget_session(&session);
            }
            Session::Move(to) => {
                if self.asks_for_any(ticket, &to) {
                    if let Some(client) = self.relay.clients.get(key) {
                        client.session = Some(Box::new(Session::Share(to, frame.to_vec())));
                    }
                    return;
                }
                self.complete_move(key, to, frame);
            }
            Session::Answer(answer) => self.give_answer(key, answer),
            Session::Verify(_) | Session::Redirected(_) => {}
        }
        self.session_over(ticket);
    }

    /// Asks whether any password does for the user of the pool that a client is to move to, if
    /// there is reason to; see [`crate::session::login_queue`].
    fn asks_for_any(&mut self, ticket: Ticket, to: &Move) -> bool {
        let Some(question) = self.question_of_any(to.pool) else { return false };
        let mut bytes = Vec::new();
        encode::command(&mut bytes, &question);
        let node = self.relay.home(ticket.client);
        let Ok(link) = self.link_for_password(ticket.client, to.pool, node) else { return false };
        self.relay.upstream.push_to_link(self.relay.now, link, &bytes, ticket);
        true
    }

    /// The server could not be asked, or refused what the pool's connections begin with.
    pub(crate) fn session_failed(&mut self, ticket: Ticket, failure: &Failure) {
        let key = ticket.client;
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(session) = client.session.take() else { return };
        if failure.is_refused_login {
            self.session_refused(key, session.tried());
        } else {
            self.session_not_refused(key, session.tried());
        }
        match &failure.refusal {
            Some(refusal) => self.relay.clients.error(key, &String::from_utf8_lossy(refusal)),
            None => self.relay.clients.error(key, &failure.text),
        }
        self.forget_session(&session);
        self.session_over(ticket);
    }

    fn session_over(&mut self, ticket: Ticket) {
        let key = ticket.client;
        // The answer is behind the one that the server was to give.
        self.relay.clients.fill(key, ticket.seq, b"");
        self.read_dedicated_again(key);
        self.relay.clients.finish_if_leaving(key);
    }

    /// A client's dedicated connection is not read from while something else is being answered.
    pub(in crate::session) fn read_dedicated_again(&mut self, key: ClientKey) {
        if let Some(client) = self.relay.clients.get(key)
            && let Some(dedicated) = &client.dedicated
        {
            let readable =
                |link: &usize| self.relay.upstream.links.get(*link).is_some_and(|l| l.readable);
            self.relay.upstream.eager_links.extend(dedicated.links().filter(readable));
        }
    }

    /// A client does not move: the pool that was opened for the attempt is closed.
    pub(crate) fn forget_session(&mut self, session: &Session) {
        if let Session::Move(Move { pool, .. }) | Session::Share(Move { pool, .. }, _) = session {
            self.relay.upstream.leave_pool(self.relay.now, *pool);
            self.relay.links().drop_pool_if_unused(*pool);
        }
    }

    fn session_refused(&mut self, key: ClientKey, tried: Option<Tried>) {
        if let Some(tried) = tried {
            self.login_refused(key, tried);
        }
    }

    fn session_not_refused(&mut self, key: ClientKey, tried: Option<Tried>) {
        if let Some(tried) = tried {
            self.login_not_refused(key, tried);
        }
    }

    fn complete_move(&mut self, key: ClientKey, to: Move, frame: &[u8]) {
        self.session_not_refused(key, to.tried);
        let Some(client) = self.relay.clients.get(key) else { return };
        let old = client.pool;
        client.pool = to.pool;
        let id = client.record.id;
        if let Some(name) = to.name {
            client.record.facts().name = name;
        }
        self.relay.upstream.leave_pool(self.relay.now, old);
        self.shed_siblings(to.pool);
        self.note_login(key);
        if to.hello {
            let frame = with_id(frame, id);
            let frame =
                if self.relay.cluster.view.is_some() { as_standalone(&frame) } else { frame };
            self.relay.clients.reply(key, &frame);
        } else {
            self.relay.clients.reply(key, frame);
        }
    }

    /// Writes the client's user, database and protocol to its client record.
    fn note_login(&mut self, key: ClientKey) {
        let Some(login) = self.login_of(key) else { return };
        let by_server = self.relay.shared.verifier.is_none();
        let Some(client) = self.relay.clients.get(key) else { return };
        let is_nobody = !by_server && !client.is_known;
        let mut facts = client.record.facts();
        if is_nobody {
            facts.user = b"default".to_vec();
        }
        if by_server {
            facts.user = login.credentials.map_or(b"default".to_vec(), |c| c.user_name().to_vec());
        }
        facts.db = login.db;
        facts.resp = if login.protocol == Protocol::Resp3 { 3 } else { 2 };
    }
}

/// The options of a `HELLO`.
#[derive(Default)]
struct Greeting {
    credentials: Option<Credentials>,
    name: Option<Vec<u8>>,
}

impl Greeting {
    /// Or what is said of the first option that is none. One login a request: not all servers try only the
    /// last of several.
    fn of(request: Request<'_>) -> Result<Self, String> {
        let mut greeting = Self::default();
        let mut at = 2;
        while at < request.len() {
            match (request.arg(at + 1), request.arg(at + 2)) {
                (Some(user), Some(password))
                    if request.is(at, "auth") && greeting.credentials.is_none() =>
                {
                    let (user, password) = (Some(user.to_vec()), password.to_vec());
                    greeting.credentials = Some(Credentials { user, password });
                    at += 3;
                }
                (Some(wanted), _) if request.is(at, "setname") && is_valid_name(wanted) => {
                    greeting.name = Some(wanted.to_vec());
                    at += 2;
                }
                _ => {
                    let option = String::from_utf8_lossy(request.arg(at).unwrap_or_default());
                    return Err(format!("ERR Syntax error in HELLO option '{option}'"));
                }
            }
        }
        Ok(greeting)
    }
}

/// The login of an `AUTH`, unless the server refuses its form.
fn credentials_of_auth(request: Request<'_>) -> Option<Credentials> {
    let (user, password) = match (request.len(), request.arg(1), request.arg(2)) {
        (2, Some(password), _) => (None, password),
        (3, Some(user), Some(password)) => (Some(user.to_vec()), password),
        _ => return None,
    };
    Some(Credentials { user, password: password.to_vec() })
}

/// A name a client may have, by the server's rule.
pub(crate) fn is_valid_name(name: &[u8]) -> bool {
    name.iter().all(|b| (b'!'..=b'~').contains(b))
}

/// The reply of `HELLO` with the client's id in place of the shared connection's.
fn with_id(frame: &[u8], id: u64) -> Vec<u8> {
    const FIELD: &[u8] = b"$2\r\nid\r\n:";
    let Some(start) = frame.windows(FIELD.len()).position(|window| window == FIELD) else {
        return frame.to_vec();
    };
    let start = start + FIELD.len();
    let end = start + frame[start..].iter().position(|b| *b == b'\r').unwrap_or(0);
    [&frame[..start], id.to_string().as_bytes(), &frame[end..]].concat()
}

/// The reply of `HELLO` as of a server that is not part of a cluster.
fn as_standalone(frame: &[u8]) -> Vec<u8> {
    const FIELD: &[u8] = b"$4\r\nmode\r\n$7\r\ncluster\r\n";
    let Some(start) = frame.windows(FIELD.len()).position(|window| window == FIELD) else {
        return frame.to_vec();
    };
    let rest = &frame[start + FIELD.len()..];
    [&frame[..start], b"$4\r\nmode\r\n$10\r\nstandalone\r\n", rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_shows_the_clients_own_id() {
        let frame = b"*4\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:1234\r\n";
        assert_eq!(with_id(frame, 7), b"*4\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:7\r\n");
        assert_eq!(with_id(b"+OK\r\n", 7), b"+OK\r\n");
    }

    #[test]
    fn names_are_printable_and_without_blanks() {
        assert!(is_valid_name(b"worker-1") && is_valid_name(b""));
        assert!(!is_valid_name(b"a b") && !is_valid_name(b"a\n") && !is_valid_name(b"\xc3\xa9"));
    }
}
