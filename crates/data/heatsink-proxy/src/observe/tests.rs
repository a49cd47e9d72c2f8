use super::*;

#[test]
fn nothing_is_told_from_something() {
    for nothing in ["$-1\r\n", "*-1\r\n", "_\r\n", "*0\r\n", "%0\r\n", "~0\r\n"] {
        assert!(is_nothing(nothing.as_bytes()), "{nothing:?}");
    }
    for something in ["$0\r\n\r\n", ":0\r\n", "*1\r\n$-1\r\n", "+OK\r\n", "-ERR\r\n", "$1\r\n-\r\n"]
    {
        assert!(!is_nothing(something.as_bytes()), "{something:?}");
    }
}

#[test]
fn the_elements_of_an_array_come_one_by_one() {
    let mut elements = Elements::of(b"*3\r\n$1\r\na\r\n$-1\r\n*1\r\n:1\r\n").expect("an array");
    assert_eq!(elements.next(), Some(&b"$1\r\na\r\n"[..]));
    assert_eq!(elements.next(), Some(&b"$-1\r\n"[..]));
    assert_eq!(elements.next(), Some(&b"*1\r\n:1\r\n"[..]));
    assert_eq!(elements.next(), None);
    assert!(Elements::of(b"-ERR no\r\n").is_none());
}

#[test]
fn ticks_end_when_nothing_is_counted_and_begin_with_the_next_request() {
    let settings = Settings::default();
    let (mut stations, mut detector) = stations(&settings, 1);
    let station = stations.pop().expect("one");
    let mut observer = Observer::new(station, &settings, 1, &Live::default(), Clock::System);
    assert_eq!(observer.due(), None);
    let hasher = observer.hasher.clone();
    let key = hasher.key(b"a");
    let _ = observer.begin(key, Kind::Read, 10, ValueKind::Unknown);
    let mut ticks = 0;
    let mut last = Instant::now();
    while let Some(due) = observer.due() {
        assert!(due > last && due <= last + settings.slot_length() * 2);
        last = due;
        observer.tick(due);
        ticks += 1;
        assert!(ticks < 30, "after a window there is nothing to tell");
    }
    assert!(ticks > 20, "{ticks}");
    let _ = observer.begin(key, Kind::Read, 10, ValueKind::Unknown);
    assert!(observer.due().is_some());
    assert_eq!(detector.tick().keys, [], "one request does not make a name");
}
