//! Logins that are checked here, by the users file, instead of by the servers.
//!
//! Called by: `switch`, for `AUTH` and `HELLO` under `auth = "service"`.
//! To the servers, all clients are the one user of the upstream URL. Until a client has logged in here,
//! none of its requests is sent there.
//! Bound: one login of a client at a time; the verifier's queue, beyond which a login is refused; wrong
//! logins as `login_queue` says.

use std::sync::Arc;

use heatsink_resp::command::Role;
use heatsink_upstream::Login;
use heatsink_upstream::address::Credentials;
use heatsink_users::Verdict;

use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Flow;
use crate::session::Sessions;
use crate::session::login_queue::{Tried, Turn, Wanted};
use crate::session::switch::Session;

const WRONG: &[u8] = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n";
const NO_AUTH: &[u8] = b"-NOAUTH Authentication required.\r\n";
const NO_AUTH_EXEC: &[u8] =
    b"-EXECABORT Transaction discarded because of: NOAUTH Authentication required.\r\n";
const NO_AUTH_HELLO: &[u8] = b"-NOAUTH HELLO must be called with the client already \
    authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to \
    authenticate the client and select the RESP protocol version at the same time\r\n";

/// A login that is being checked, and what happens if it is right.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// `HELLO`: the pool to move to,
    pub(crate) login: Option<Login>,
    /// the client's new name,
    pub(crate) name: Option<Vec<u8>>,
    /// and what the server is asked.
    pub(crate) hello: Vec<u8>,
}

/// An attempt under way.
#[derive(Debug)]
pub(crate) struct Verification {
    attempt: Attempt,
    user: Vec<u8>,
    seq: u32,
    tried: Tried,
}

impl Sessions<'_> {
    /// `HELLO`, well-formed.
    pub(in crate::session) fn hello_service(
        &mut self,
        key: ClientKey,
        login: Login,
        credentials: Option<Credentials>,
        name: Option<Vec<u8>>,
        hello: Vec<u8>,
    ) -> Flow {
        let known = self.relay.clients.get_ref(key).is_some_and(|client| client.is_known);
        if let Some(credentials) = credentials {
            let attempt = Attempt { login: Some(login), name, hello };
            return self.verify(key, credentials.user_name(), &credentials.password, attempt);
        }
        if known {
            self.begin_move(key, &login, &hello, name, true, None);
        } else {
            self.relay.clients.reply(key, NO_AUTH_HELLO);
        }
        Flow::Taken
    }

    /// Has a login checked. No other request of the client is taken meanwhile.
    pub(in crate::session) fn verify(
        &mut self,
        key: ClientKey,
        user: &[u8],
        password: &[u8],
        attempt: Attempt,
    ) -> Flow {
        let shared = Arc::clone(&self.relay.shared);
        let Some(verifier) = &shared.verifier else { return Flow::Taken };
        if verifier.is_remembered(user, password) {
            self.admit(key, user, attempt);
            return Flow::Taken;
        }
        let tried = match self.login_turn(key, Wanted::Password(user, password)) {
            Turn::Now(tried) => tried,
            Turn::Later => return Flow::Wait,
            Turn::Never => return Flow::Taken,
        };
        if verifier.submit((self.relay.index, key), user, password).is_err() {
            self.login_not_refused(key, tried);
            self.relay.clients.error(key, "ERR heatsink: too many logins at once, try again");
            return Flow::Taken;
        }
        if let Some((client, buffers)) = self.relay.clients.get_with_buffers(key) {
            client.stopped = true;
            let seq = client.order.reserve(buffers);
            let verification = Verification { attempt, user: user.to_vec(), seq, tried };
            client.session = Some(Box::new(Session::Verify(verification)));
        }
        Flow::Taken
    }

    /// A login has been checked.
    pub(crate) fn verified(&mut self, key: ClientKey, verdict: Verdict) {
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(session) = client.session.take() else { return };
        let Session::Verify(Verification { attempt, user, seq, tried }) = *session else {
            client.session = Some(session);
            return;
        };
        // The answer is behind the reply that was waited for.
        self.relay.clients.fill(key, seq, b"");
        match verdict {
            Verdict::Granted => {
                self.login_not_refused(key, tried);
                self.admit(key, &user, attempt);
            }
            Verdict::Refused => {
                self.login_refused(key, tried);
                self.relay.clients.reply(key, WRONG);
            }
        }
        if let Some(client) = self.relay.clients.get(key)
            && client.session.is_none()
        {
            self.relay.clients.resume.push(key);
        }
        self.read_dedicated_again(key);
        self.relay.clients.finish_if_leaving(key);
    }

    fn admit(&mut self, key: ClientKey, user: &[u8], attempt: Attempt) {
        let Some(client) = self.relay.clients.get(key) else { return };
        client.is_known = true;
        client.record.facts().user = user.to_vec();
        match attempt.login {
            Some(login) => {
                self.begin_move(key, &login, &attempt.hello, attempt.name, true, None);
            }
            None => self.relay.clients.reply(key, b"+OK\r\n"),
        }
    }
}

impl Clients {
    /// The error for a client that sends anything but a login before it has logged in.
    pub(crate) fn refuse_unknown(&mut self, key: ClientKey, role: Option<Role>) {
        let refusal = if role == Some(Role::Exec) { NO_AUTH_EXEC } else { NO_AUTH };
        self.reply(key, refusal);
    }
}
