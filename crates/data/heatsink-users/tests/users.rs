//! The users file and the verifier as the proxy uses them. Hashes are cheap here; what a
//! costly one changes is only the time.

use std::fmt::Write;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;
use std::{fs, io};

use argon2::password_hash::PasswordHasher;
use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, Version};
use heatsink_users::{
    Busy, NAME_LIMIT_BYTES, PASSWORD_LIMIT_BYTES, QUEUE_LIMIT_PER_THREAD, Users, UsersProblem,
    Verdict, Verifier,
};
use tempfile::NamedTempFile;

fn cheap(algorithm: Algorithm, password: &str) -> String {
    let argon2 = Argon2::new(algorithm, Version::V0x13, Params::new(8, 1, 1, None).unwrap());
    let hash: PasswordHash = argon2.hash_password(password.as_bytes()).unwrap();
    hash.to_string()
}

/// A user's section with one hash for each password.
fn user(name: &str, passwords: &[&str]) -> String {
    let mut text = format!("[[user]]\nname = {name:?}\nhashes = [\n");
    for password in passwords {
        writeln!(text, "  {:?},", cheap(Algorithm::Argon2id, password)).unwrap();
    }
    text + "]\n"
}

fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

/// A verifier whose verdicts come out of a channel.
struct Desk {
    verifier: Verifier<u32>,
    verdicts: Receiver<(u32, Verdict)>,
}

impl Desk {
    fn new(users: &Users, threads: usize) -> Self {
        let (sender, verdicts): (Sender<(u32, Verdict)>, _) = mpsc::channel();
        let on_done = move |ticket, verdict| sender.send((ticket, verdict)).unwrap();
        Self { verifier: Verifier::start(users.clone(), threads, on_done).unwrap(), verdicts }
    }

    fn verdict(&self, name: &str, password: &str) -> Verdict {
        self.verifier.submit(1, name.as_bytes(), password.as_bytes()).unwrap();
        let (ticket, verdict) = self.next();
        assert_eq!(ticket, 1);
        verdict
    }

    fn next(&self) -> (u32, Verdict) {
        self.verdicts.recv_timeout(Duration::from_secs(20)).expect("a verdict")
    }
}

#[test]
fn only_the_right_password_of_an_enabled_user_is_granted() {
    let gone = user("gone", &["secret"]) + "enabled = false\n";
    let users = Users::load(file(&(user("app", &["secret"]) + &gone)).path()).unwrap();
    assert_eq!(users.user_count(), 2);
    let desk = Desk::new(&users, 2);
    for _ in 0..3 {
        assert_eq!(desk.verdict("app", "secret"), Verdict::Granted);
        assert_eq!(desk.verdict("app", "secre"), Verdict::Refused);
        assert_eq!(desk.verdict("app", ""), Verdict::Refused);
        assert_eq!(desk.verdict("App", "secret"), Verdict::Refused);
        assert_eq!(desk.verdict("", "secret"), Verdict::Refused);
        assert_eq!(desk.verdict("", ""), Verdict::Refused);
        assert_eq!(desk.verdict("nobody", "secret"), Verdict::Refused);
        assert_eq!(desk.verdict("gone", "secret"), Verdict::Refused);
    }
}

#[test]
fn a_file_without_users_grants_nothing() {
    let users = Users::load(file("").path()).unwrap();
    assert_eq!(users.user_count(), 0);
    assert_eq!(Desk::new(&users, 1).verdict("default", ""), Verdict::Refused);
}

#[test]
fn the_hash_that_the_command_makes_is_accepted() {
    let hash = heatsink_users::hash(b"secret");
    assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
    assert_ne!(hash, heatsink_users::hash(b"secret"), "the salt is random");
    let text = format!("[[user]]\nname = \"app\"\nhash = \"{hash}\"\nenabled = true\n");
    let desk = Desk::new(&Users::load(file(&text).path()).unwrap(), 1);
    assert_eq!(desk.verdict("app", "secret"), Verdict::Granted);
    assert_eq!(desk.verdict("app", "other"), Verdict::Refused);
}

#[test]
fn a_password_rotates_through_two_hashes() {
    let file = file(&user("app", &["old", "new"]));
    let users = Users::load(file.path()).unwrap();
    let desk = Desk::new(&users, 1);
    assert_eq!(desk.verdict("app", "old"), Verdict::Granted);
    assert_eq!(desk.verdict("app", "new"), Verdict::Granted);
    assert!(desk.verifier.is_remembered(b"app", b"old"));

    fs::write(file.path(), user("app", &["new"])).unwrap();
    users.reload().unwrap();
    assert!(!desk.verifier.is_remembered(b"app", b"old"));
    assert_eq!(desk.verdict("app", "old"), Verdict::Refused);
    assert_eq!(desk.verdict("app", "new"), Verdict::Granted);
}

#[test]
fn successes_are_remembered_until_a_reload_and_failures_never() {
    let file = file(&user("app", &["secret"]));
    let users = Users::load(file.path()).unwrap();
    let desk = Desk::new(&users, 1);
    assert!(!desk.verifier.is_remembered(b"app", b"secret"));
    assert_eq!(desk.verdict("app", "secret"), Verdict::Granted);
    assert_eq!(desk.verdict("app", "wrong"), Verdict::Refused);
    assert!(desk.verifier.is_remembered(b"app", b"secret"));
    assert!(!desk.verifier.is_remembered(b"app", b"wrong"));
    assert!(!desk.verifier.is_remembered(b"nobody", b"secret"));

    users.reload().unwrap();
    assert!(!desk.verifier.is_remembered(b"app", b"secret"));
    assert_eq!(desk.verdict("app", "secret"), Verdict::Granted);

    let text = fs::read_to_string(file.path()).unwrap() + "enabled = false\n";
    fs::write(file.path(), text).unwrap();
    users.reload().unwrap();
    assert_eq!(desk.verdict("app", "secret"), Verdict::Refused);
    assert!(!desk.verifier.is_remembered(b"app", b"secret"), "not even as a disabled user");
}

#[test]
fn an_invalid_file_leaves_the_users_as_they_were() {
    let file = file(&user("app", &["secret"]));
    let users = Users::load(file.path()).unwrap();
    let desk = Desk::new(&users, 1);
    assert_eq!(desk.verdict("app", "secret"), Verdict::Granted);

    fs::write(file.path(), "[[user]]\nname = \"other\"\nhash = \"plain\"\n").unwrap();
    let error = users.reload().unwrap_err();
    assert_eq!(error.line, Some(3));
    assert!(desk.verifier.is_remembered(b"app", b"secret"));
    assert_eq!(desk.verdict("app", "secret"), Verdict::Granted);
    assert_eq!(users.user_count(), 1);

    let path = file.path().to_owned();
    drop(file);
    let error = users.reload().unwrap_err();
    assert!(
        matches!(&error.problem, UsersProblem::Unreadable(why) if why.kind() == io::ErrorKind::NotFound)
    );
    assert_eq!(error.to_string(), format!("{}: no such file", path.display()));
    assert_eq!(desk.verdict("app", "secret"), Verdict::Granted);
}

#[test]
fn errors_name_the_line_and_quote_no_secret() {
    let good = cheap(Algorithm::Argon2id, "hidden");
    let other_kind = cheap(Algorithm::Argon2i, "hidden");
    let costly = good.replace("m=8", "m=999999");
    let bare = good.rsplit_once('$').unwrap().0;
    let long_name = "n".repeat(NAME_LIMIT_BYTES + 1);
    let too_many = format!("[{}]", vec![format!("{good:?}"); 5].join(", "));
    let cases = [
        ("# users\n\n[[user]\n".to_owned(), 3, ""),
        (
            format!("[[user]]\nname = \"a\"\nhash = {good:?}\npassword = \"hidden\"\n"),
            4,
            "password",
        ),
        ("[[users]]\nname = \"a\"\n".to_owned(), 1, "users"),
        (format!("\n[[user]]\nhash = {good:?}\n"), 2, "name"),
        ("[[user]]\nname = 7\n".to_owned(), 2, "string"),
        ("user = \"hidden\"\n".to_owned(), 1, "wrong type of value"),
        ("[[user]]\nname = \"a\"\nhashes = \"hidden, hidden\"\n".to_owned(), 3, "sequence"),
        ("[[user]]\nname = \"a\"\nenabled = \"hidden\"\n".to_owned(), 3, "boolean"),
        ("[[user]]\nname = \"a\"\nhash = hidden\n".to_owned(), 3, ""),
        ("[[user]]\nname = \"a\"\nhash = \"hidden\n".to_owned(), 3, ""),
        (format!("[[user]]\nname = \"\"\nhash = {good:?}\n"), 2, "a name"),
        (format!("[[user]]\nname = {long_name:?}\nhash = {good:?}\n"), 2, "at most 256 bytes"),
        ("[[user]]\nname = \"a\"\n".to_owned(), 2, "either `hash` or `hashes`"),
        (format!("[[user]]\nname = \"a\"\nhash = {good:?}\nhashes = []\n"), 2, "either"),
        ("[[user]]\nname = \"a\"\nhashes = []\n".to_owned(), 3, "one to 4"),
        (format!("[[user]]\nname = \"a\"\nhashes = {too_many}\n"), 3, "one to 4"),
        ("[[user]]\nname = \"a\"\nhash = \"hidden\"\n".to_owned(), 3, "Argon2id"),
        (format!("[[user]]\nname = \"a\"\nhash = {other_kind:?}\n"), 3, "Argon2id"),
        (format!("[[user]]\nname = \"a\"\nhash = {bare:?}\n"), 3, "Argon2id"),
        (format!("[[user]]\nname = \"a\"\nhash = {costly:?}\n"), 3, "too costly"),
        (user("a", &["hidden"]) + &user("a", &["hidden"]), 7, "\"a\" was defined before"),
    ];
    for (text, line, word) in cases {
        let file = file(&text);
        let error = Users::load(file.path()).unwrap_err();
        assert_eq!(error.line, Some(line), "{error}\n{text}");
        let said = error.to_string();
        let place = format!("{}:{line}: ", file.path().display());
        assert!(said.starts_with(&place) && said.contains(word), "{said}\n{text}");
        assert!(!said.contains("hidden") && !said.contains("$argon2id$v=19$m=8"), "{said}");
    }
}

#[test]
fn a_full_queue_says_busy_and_every_accepted_login_gets_its_verdict() {
    let users = Users::load(file(&user("app", &["secret"])).path()).unwrap();
    let (entered, waiting) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let (sender, verdicts) = mpsc::channel();
    let verifier = Verifier::start(users, 1, move |ticket: usize, verdict| {
        if ticket == 0 {
            entered.send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        }
        sender.send((ticket, verdict)).unwrap();
    })
    .unwrap();

    verifier.submit(0, b"app", b"secret").unwrap();
    waiting.recv().unwrap();
    for ticket in 1..=QUEUE_LIMIT_PER_THREAD {
        verifier.submit(ticket, b"app", b"secret").unwrap();
    }
    assert_eq!(verifier.submit(9999, b"app", b"secret"), Err(Busy));
    release.send(()).unwrap();
    for ticket in 0..=QUEUE_LIMIT_PER_THREAD {
        let verdict = verdicts.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(verdict, (ticket, Verdict::Granted));
    }
    verifier.submit(10, b"app", b"secret").unwrap();
    assert_eq!(verdicts.recv_timeout(Duration::from_secs(20)).unwrap(), (10, Verdict::Granted));
    drop(verifier);
    assert!(verdicts.recv().is_err(), "nothing more, and the threads are gone");
}

#[test]
fn what_is_too_long_is_refused() {
    let longest = "p".repeat(PASSWORD_LIMIT_BYTES);
    let longer = "p".repeat(PASSWORD_LIMIT_BYTES + 1);
    let text = user("app", &[&longest, &longer]);
    let desk = Desk::new(&Users::load(file(&text).path()).unwrap(), 1);
    assert_eq!(desk.verdict("app", &longest), Verdict::Granted);
    assert_eq!(desk.verdict("app", &longer), Verdict::Refused);
    assert_eq!(desk.verdict(&"a".repeat(1 << 20), &longest), Verdict::Refused);
    assert!(!desk.verifier.is_remembered(b"app", longer.as_bytes()));
}

#[test]
fn many_logins_on_many_threads_each_get_their_own_verdict() {
    let users = Users::load(file(&user("app", &["secret"])).path()).unwrap();
    let desk = Desk::new(&users, 4);
    for ticket in 0..400 {
        let password: &[u8] = if ticket % 3 == 0 { b"secret" } else { b"wrong" };
        desk.verifier.submit(ticket, b"app", password).unwrap();
        if ticket % 100 == 50 {
            users.reload().unwrap_err(); // the file is gone: nothing changes
        }
    }
    let mut seen = vec![false; 400];
    for _ in 0..400 {
        let (ticket, verdict) = desk.next();
        let expected = if ticket % 3 == 0 { Verdict::Granted } else { Verdict::Refused };
        assert_eq!(verdict, expected, "{ticket}");
        assert!(!std::mem::replace(&mut seen[ticket as usize], true), "{ticket} twice");
    }
}
