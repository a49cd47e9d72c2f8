//! A server behind Heatsink that only Heatsink may use, and one with the users of the file.

use std::fs;
use std::sync::OnceLock;

use heatsink_conformance::Heatsink;
use heatsink_proxy::config::{Auth, Config};
use heatsink_testkit::{RawClient, RedisServer, Reply, encode};
use heatsink_users::{Users, hash};
use tempfile::NamedTempFile;

/// The user whom Heatsink is at the server, and the password that nobody may see.
pub(crate) const UPSTREAM_USER: &str = "hidden";
pub(crate) const UPSTREAM_SECRET: &str = "upstream-secret";

/// The users of the file: name, password, enabled.
const USERS: [(&str, &str, bool); 3] =
    [("default", "default-pw", true), ("app", "app-pw", true), ("off", "off-pw", false)];

/// The file, and what was read from it.
pub(crate) struct UsersFile {
    pub(crate) users: Users,
    file: NamedTempFile,
}

impl UsersFile {
    pub(crate) fn new() -> Self {
        // Slow on purpose, so made once.
        static TEXT: OnceLock<String> = OnceLock::new();
        let text = TEXT.get_or_init(|| USERS.map(entry).concat());
        let file = NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), text).expect("a written file");
        let users = Users::load(file.path()).expect("a valid file");
        Self { users, file }
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(self.file.path(), text).expect("a written file");
    }
}

/// One user as it stands in the file.
pub(crate) fn entry((name, password, enabled): (&str, &str, bool)) -> String {
    let hash = hash(password.as_bytes());
    format!("[[user]]\nname = \"{name}\"\nhash = \"{hash}\"\nenabled = {enabled}\n")
}

/// Heatsink with its users before a server that knows only one.
pub(crate) struct Fixture {
    pub(crate) heatsink: Heatsink,
    pub(crate) server: RedisServer,
    /// A server with the same users, for comparison.
    pub(crate) reference: RedisServer,
    pub(crate) file: UsersFile,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(adjust: impl FnOnce(&mut Config)) -> Self {
        let server = RedisServer::builder()
            .line("user default off")
            .line(format!("user {UPSTREAM_USER} on >{UPSTREAM_SECRET} ~* &* +@all"))
            .admin(UPSTREAM_USER, UPSTREAM_SECRET)
            .start();
        let mut reference = RedisServer::builder().admin("default", "default-pw");
        for (name, password, enabled) in USERS {
            let switch = if enabled { "on" } else { "off" };
            reference = reference.line(format!("user {name} {switch} >{password} ~* &* +@all"));
        }
        let file = UsersFile::new();
        let users = file.users.clone();
        let port = server.port();
        let url = format!("redis://{UPSTREAM_USER}:{UPSTREAM_SECRET}@127.0.0.1:{port}");
        let heatsink = Heatsink::before_url(&url, |config| {
            config.auth = Auth::Service(users);
            adjust(config);
        });
        Self { heatsink, server, reference: reference.start(), file }
    }

    /// A connection to Heatsink and one to the server with the same users.
    pub(crate) fn pair(&self) -> [RawClient; 2] {
        [self.heatsink.client(), RawClient::connect(self.reference.addr())]
    }

    /// A client that is logged in.
    #[track_caller]
    pub(crate) fn app(&self) -> RawClient {
        let mut client = self.heatsink.client();
        assert_eq!(client.command(&["AUTH", "app", "app-pw"]), Reply::ok());
        client
    }
}

/// Both answer `bytes` with the same frame, which is returned.
#[track_caller]
pub(crate) fn same_frame(pair: &mut [RawClient; 2], bytes: &[u8]) -> String {
    let frames = pair.each_mut().map(|client| {
        client.send_raw(bytes);
        String::from_utf8_lossy(&client.read_frame()).into_owned()
    });
    let sent = bytes.escape_ascii();
    assert_eq!(frames[0], frames[1], "Heatsink, server: {sent}");
    let [frame, _] = frames;
    frame
}

/// As [`same_frame`], for one command.
#[track_caller]
pub(crate) fn same(pair: &mut [RawClient; 2], command: &[&str]) -> String {
    same_frame(pair, &encode(command))
}
