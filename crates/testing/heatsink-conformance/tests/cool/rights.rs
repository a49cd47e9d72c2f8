//! Who may see what is cached: rights are the server's to give and to take.

use std::time::{Duration, Instant};

use heatsink_conformance::Rig;
use heatsink_proxy::hot_keys::Treatment;
use heatsink_testkit::{RawClient, Reply, eventually};

use crate::served::SOON;

/// What is cached for a user is read again within this time, give or take a turn.
const BOUND: Duration = Duration::from_secs(1);
/// The same for all who do not log in.
const COMMON_BOUND: Duration = Duration::from_secs(9);

/// `k` is hot and holds `secret`; `ann` may do all, `bob` may read, `eve` may read other keys.
fn rig(treatment: Treatment, workers: usize) -> Rig {
    let rig = Rig::new(workers);
    rig.heatsink().heat(&["k"], treatment);
    let mut admin = rig.server().client();
    for rule in [
        &["ACL", "SETUSER", "ann", "on", ">ann-pw", "~*", "&*", "+@all"][..],
        &["ACL", "SETUSER", "bob", "on", ">bob-pw", "~*", "&*", "+@all"],
        &["ACL", "SETUSER", "eve", "on", ">eve-pw", "~e:*", "&*", "+@all"],
        &["SET", "k", "secret"],
    ] {
        assert_eq!(admin.command(rule), Reply::ok());
    }
    rig
}

fn login(rig: &Rig, user: &str) -> RawClient {
    let mut client = rig.client();
    assert_eq!(client.command(&["AUTH", user, &format!("{user}-pw")]), Reply::ok());
    client
}

fn get(client: &mut RawClient) -> Reply {
    client.command(&["GET", "k"])
}

/// Reads until a read is answered without the server.
fn warm(rig: &Rig, client: &mut RawClient) {
    eventually(SOON, || {
        let before = rig.server().calls("get");
        assert_eq!(get(client), Reply::bulk("secret"));
        rig.server().calls("get") == before
    });
}

/// How long a user was still served after its right was gone, by a client that reads on.
fn served_for(client: &mut RawClient) -> Duration {
    let since = Instant::now();
    loop {
        let sent = since.elapsed();
        let reply = get(client);
        if reply.is_error() {
            assert!(reply.error().starts_with("NOPERM"), "{reply}");
            return sent;
        }
        assert_eq!(reply, Reply::bulk("secret"));
        assert!(sent < SOON, "it is served for ever");
    }
}

/// ```text
/// 1. ann and bob read the key: cached for each      2. bob's right is taken away
/// 3. bob goes on to read, for a second at most      4. ann is served as before
/// ```
#[test]
fn a_right_that_is_taken_away_ends_what_is_cached() {
    // What is in use is read ahead, and the refusal ends it.
    let rig = rig(Treatment::COHERENT, 1);
    let mut admin = rig.server().client();
    let [mut ann, mut bob] = ["ann", "bob"].map(|user| login(&rig, user));
    let mut longest = Duration::ZERO;
    for loss in ["-get", "resetkeys"] {
        warm(&rig, &mut ann);
        warm(&rig, &mut bob);
        assert_eq!(admin.command(&["ACL", "SETUSER", "bob", loss]), Reply::ok());
        longest = longest.max(served_for(&mut bob));
        for _ in 0..20 {
            assert!(get(&mut bob).error().starts_with("NOPERM"));
            assert_eq!(get(&mut ann), Reply::bulk("secret"));
        }
        warm(&rig, &mut ann);
        assert_eq!(admin.command(&["ACL", "SETUSER", "bob", "~*", "+@all"]), Reply::ok());
        eventually(SOON, || get(&mut bob) == Reply::bulk("secret"));
    }
    println!("served for {longest:?} without the right");
    assert!(longest <= BOUND, "{longest:?}");
}

/// The same for one who reads seldom, so that nothing is read ahead.
///
/// ```text
/// 1. bob reads the key: cached      2. bob's right is taken away
/// 3. a second later, bob reads again
/// ```
#[test]
fn a_right_that_is_taken_away_from_one_who_reads_seldom() {
    let rig = rig(Treatment::COHERENT, 1);
    let mut bob = login(&rig, "bob");
    warm(&rig, &mut bob);
    let take = ["ACL", "SETUSER", "bob", "-get"];
    assert_eq!(rig.server().client().command(&take), Reply::ok());
    std::thread::sleep(BOUND);
    assert!(get(&mut bob).error().starts_with("NOPERM"));
}

/// Those who do not say who they are have rights, too.
///
/// ```text
/// 1. a client without a login reads the key: cached
/// 2. the default user's right is taken away        3. it reads on
/// ```
#[test]
fn a_right_of_those_without_login_that_is_taken_away() {
    let rig = rig(Treatment::COHERENT, 1);
    let mut client = rig.client();
    warm(&rig, &mut client);
    let take = ["ACL", "SETUSER", "default", "-get"];
    assert_eq!(rig.server().client().command(&take), Reply::ok());
    let served = served_for(&mut client);
    assert!(served <= COMMON_BOUND, "{served:?}");
}

/// ```text
/// 1. bob reads the key: cached            2. bob is deleted
/// 3. the server closes bob's links        4. bob reads
/// ```
#[test]
fn a_user_that_is_deleted_is_served_nothing() {
    let rig = rig(Treatment::COHERENT, 1);
    let [mut ann, mut bob] = ["ann", "bob"].map(|user| login(&rig, user));
    warm(&rig, &mut ann);
    warm(&rig, &mut bob);
    let delete = ["ACL", "DELUSER", "bob"];
    assert_eq!(rig.server().client().command(&delete), Reply::Integer(1));
    let since = Instant::now();
    // An error, or a closed connection.
    eventually(SOON, || bob.try_command(&["GET", "k"]).map_or(true, |reply| reply.is_error()));
    assert!(since.elapsed() <= BOUND, "{:?}", since.elapsed());
    assert_eq!(get(&mut ann), Reply::bulk("secret"));
}

/// ```text
/// 1. ann's read is cached, or out        2. eve, who may not, asks the same
/// 3. eve must not be told what ann is, nor ann what eve is
/// ```
#[test]
fn nobody_is_told_what_only_another_may_see() {
    for treatment in [Treatment::EXACT, Treatment::COHERENT, Treatment::RELAXED] {
        let rig = rig(treatment, 1);
        let mut admin = rig.server().client();
        let mut anns = ["ann", "bob", "ann"].map(|user| login(&rig, user));
        let mut eves = ["eve", "eve"].map(|user| login(&rig, user));
        for round in 0..100 {
            // All are out at once, in either order.
            let say = |clients: &mut [RawClient]| {
                for client in clients {
                    client.send(&["GET", "k"]);
                }
            };
            if round % 2 == 0 {
                say(&mut anns);
                say(&mut eves);
            } else {
                say(&mut eves);
                say(&mut anns);
            }
            for ann in &mut anns {
                assert_eq!(ann.read_reply(), Reply::bulk("secret"), "{treatment:?}");
            }
            for eve in &mut eves {
                assert!(eve.read_reply().error().starts_with("NOPERM"), "{treatment:?}");
            }
            if round % 10 == 0 {
                admin.command(&["SET", "k", "secret"]);
            }
        }
        // A connection that becomes another's.
        let mut client = login(&rig, "ann");
        assert_eq!(get(&mut client), Reply::bulk("secret"));
        assert_eq!(client.command(&["AUTH", "eve", "eve-pw"]), Reply::ok());
        assert!(get(&mut client).error().starts_with("NOPERM"));
        assert_eq!(client.command(&["AUTH", "ann", "ann-pw"]), Reply::ok());
        assert_eq!(get(&mut client), Reply::bulk("secret"));
    }
}

/// The same key in another database is another key.
///
/// ```text
/// 1. A reads the key in database 0: cached     2. A selects database 1, and reads the same
/// ```
#[test]
fn nobody_is_told_what_is_in_another_database() {
    let rig = rig(Treatment::COHERENT, 1);
    let mut client = rig.client();
    warm(&rig, &mut client);
    for _ in 0..20 {
        assert_eq!(client.command(&["SELECT", "1"]), Reply::ok());
        assert_eq!(get(&mut client), Reply::Null);
        assert_eq!(client.command(&["SELECT", "0"]), Reply::ok());
        assert_eq!(get(&mut client), Reply::bulk("secret"));
    }
}
