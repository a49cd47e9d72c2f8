//! The process guard: output, signals, exit, and death with its parent.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use heatsink_testkit::{Process, eventually};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn lines_of_both_streams_are_collected() {
    let mut process =
        Process::spawn("sh", ["-c", "echo to-out; echo to-err >&2; printf no-newline; exit 3"]);
    assert_eq!(process.wait_for_line("o-err", SOON), "to-err");
    assert_eq!(process.wait_exit(SOON).code(), Some(3));
    assert_eq!(process.stdout(), "to-out\nno-newline\n");
    assert_eq!(process.stderr(), "to-err\n");
    assert_eq!(process.output().lines().count(), 3);
}

#[test]
#[should_panic(expected = "last words")]
fn a_line_that_cannot_come_any_more_fails_at_once() {
    let process = Process::spawn("sh", ["-c", "echo last words"]);
    process.wait_for_line("never", Duration::from_secs(3600));
}

#[test]
#[should_panic(expected = "still runs")]
fn a_process_that_does_not_end_fails_the_wait() {
    Process::spawn("sleep", ["3600"]).wait_exit(Duration::from_millis(20));
}

#[test]
fn terminate_lets_it_finish_its_own_way() {
    let script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let mut process = Process::spawn("sh", ["-c", script]);
    process.wait_for_line("ready", SOON);
    process.terminate();
    assert_eq!(process.wait_exit(SOON).code(), Some(7));
    assert_eq!(process.stdout(), "ready\nbye\n");
    process.terminate();
}

#[test]
fn environment_and_directory_are_passed() {
    let directory = tempfile::tempdir().expect("directory");
    let mut process = Process::builder("sh")
        .args(["-c", "echo $KIT_WORD; pwd -P"])
        .env("KIT_WORD", "hello")
        .directory(directory.path())
        .spawn();
    assert!(process.wait_exit(SOON).success());
    let real = directory.path().canonicalize().expect("exists");
    assert_eq!(process.stdout(), format!("hello\n{}\n", real.display()));
}

#[test]
fn a_missing_program_is_an_error() {
    assert!(Process::builder("no-such-program-anywhere").try_spawn().is_err());
    assert!(Process::builder("./no/such/path").try_spawn().is_err());
}

#[test]
fn it_outlives_the_thread_that_started_it_and_not_its_guard() {
    let started = thread::spawn(|| Process::spawn("sleep", ["3600"]));
    let mut process = started.join().expect("no panic");
    // Whatever could kill it when that thread ended would have been sent before the join.
    assert!(process.is_running());
    let entry = format!("/proc/{}", process.pid());
    process.pause();
    drop(process);
    assert!(!Path::new(&entry).exists());
}

/// Not a test by itself: [`dies_with_its_parent`] runs it in a process of its own.
#[test]
#[ignore = "run by dies_with_its_parent"]
fn parent_to_be_killed() {
    let process = Process::spawn("sh", ["-c", "echo up; exec sleep 3600"]);
    // Before this line the signal may not have been arranged yet.
    process.wait_for_line("up", SOON);
    println!("child {}", process.pid());
    eventually(Duration::from_secs(60), || false);
}

#[test]
fn dies_with_its_parent() {
    if Command::new("setpriv").arg("--version").output().is_err() {
        return; // Nothing safe can do it without setpriv; the guard's documentation says so.
    }
    let own = std::env::current_exe().expect("own path");
    let args = ["parent_to_be_killed", "--exact", "--ignored", "--nocapture"];
    let mut parent = Process::spawn(own, args);
    let line = parent.wait_for_line("child ", SOON);
    let child = line.rsplit(' ').next().expect("a pid");
    let status = Path::new("/proc").join(child).join("stat");
    assert!(status.exists());
    parent.kill();
    assert_eq!(parent.wait_exit(SOON).signal(), Some(9));
    // Its new parent may be slow to reap it: a zombie is dead enough.
    eventually(SOON, || match std::fs::read_to_string(&status) {
        Ok(text) => text.contains(") Z "),
        Err(_) => true,
    });
}
