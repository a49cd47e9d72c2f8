use heatsink_admin::HotKeyView;
use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;

use super::*;

fn key(name: &str, requests_per_second: f64) -> Key {
    let hot = HotKeyView {
        key_hash: format!("hash of {name}"),
        frequency: requests_per_second,
        mitigation_type: "coalesce".to_owned(),
        ..HotKeyView::default()
    };
    Key { hot, address: name.as_bytes().to_vec(), name: name.to_owned(), ..Key::default() }
}

fn app() -> App {
    let keys = vec![key("b", 3.0), key("a", 2.0), key("c", 1.0)];
    App::new("h:1", false, Snapshot { keys, ..Snapshot::default() })
}

fn press(app: &mut App, key: KeyCode) -> Step {
    app.press(KeyEvent::new(key, KeyModifiers::NONE))
}

fn letters(app: &mut App, text: &str) {
    for letter in text.chars() {
        assert_eq!(press(app, KeyCode::Char(letter)), Step::Draw);
    }
}

fn names(app: &App) -> Vec<&str> {
    app.rows().iter().map(|key| key.name.as_str()).collect()
}

#[test]
fn any_column_sorts_both_ways() {
    let mut app = app();
    assert_eq!(names(&app), ["b", "a", "c"]);
    for (digit, column) in ('1'..='8').zip(Column::ALL) {
        app.sort = Column::ALL[(digit as usize - '0' as usize) % 8];
        press(&mut app, KeyCode::Char(digit));
        assert_eq!(app.sort, column);
        let before = app.descending;
        press(&mut app, KeyCode::Char(digit));
        assert_ne!(app.descending, before);
    }
    app.sort_by(Column::Key);
    assert_eq!(names(&app), ["a", "b", "c"]);
    press(&mut app, KeyCode::Char('r'));
    assert_eq!(names(&app), ["c", "b", "a"]);
    press(&mut app, KeyCode::Right);
    assert_eq!((app.sort, names(&app)), (Column::Requests, vec!["b", "a", "c"]));
    press(&mut app, KeyCode::Left);
    assert_eq!(app.sort, Column::Key);
}

#[test]
fn the_choice_stays_with_its_key() {
    let mut app = app();
    press(&mut app, KeyCode::Down);
    assert_eq!(app.chosen_key().unwrap().name, "a");
    let keys = vec![key("z", 9.0), key("b", 3.0), key("a", 2.0)];
    app.hear(Message::Fleet(Box::new(Snapshot { keys, ..Snapshot::default() })));
    assert_eq!(app.chosen_key().unwrap().name, "a");
    for (code, name) in [(KeyCode::End, "a"), (KeyCode::Home, "z"), (KeyCode::PageDown, "a")] {
        press(&mut app, code);
        assert_eq!(app.chosen_key().unwrap().name, name);
    }
    // What is gone is not chosen any more.
    app.hear(Message::Fleet(Box::new(Snapshot {
        keys: vec![key("z", 9.0)],
        ..Snapshot::default()
    })));
    assert_eq!(app.chosen_key().unwrap().name, "z");
    app.hear(Message::Fleet(Box::default()));
    assert_eq!(app.chosen_key(), None);
    letters(&mut app, "pd");
    assert!(app.dialog.is_none(), "there is nothing to ask about");
}

#[test]
fn nothing_changes_without_a_yes() {
    let mut app = app();
    for no in [KeyCode::Char('n'), KeyCode::Esc] {
        letters(&mut app, "d");
        assert_eq!(press(&mut app, KeyCode::Enter), Step::Draw, "a habit is no answer");
        assert!(app.dialog.is_some());
        assert_eq!(press(&mut app, no), Step::Draw);
        assert!(app.dialog.is_none());
        letters(&mut app, "py");
        assert_eq!(press(&mut app, KeyCode::Enter), Step::Draw);
        assert_eq!(press(&mut app, no), Step::Draw);
        assert!(app.dialog.is_none());
    }
    letters(&mut app, "d");
    let (key, name) = (b"b".to_vec(), "b".to_owned());
    assert_eq!(press(&mut app, KeyCode::Char('y')), Step::Order(Order::Demote { key, name }));
}

#[test]
fn a_promotion_is_chosen_and_confirmed() {
    let mut app = app();
    letters(&mut app, "p");
    // It begins at what the key has: coalesce; split is below.
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Right);
    press(&mut app, KeyCode::Right);
    press(&mut app, KeyCode::Left);
    press(&mut app, KeyCode::Enter);
    let promotion =
        Promotion { mitigation: Mitigation::Split, split_factor: Some(4), ttl_seconds: None };
    let order = Order::Promote { key: b"b".to_vec(), name: "b".to_owned(), promotion };
    assert_eq!(press(&mut app, KeyCode::Char('y')), Step::Order(order));

    // The life is typed: no zero at the front, ten years at most, and what is typed can go.
    letters(&mut app, "p");
    letters(&mut app, "0600");
    press(&mut app, KeyCode::Backspace);
    press(&mut app, KeyCode::Enter);
    letters(&mut app, "7");
    press(&mut app, KeyCode::Backspace);
    let promotion =
        Promotion { mitigation: Mitigation::Coalesce, split_factor: None, ttl_seconds: Some(60) };
    let order = Order::Promote { key: b"b".to_vec(), name: "b".to_owned(), promotion };
    assert_eq!(press(&mut app, KeyCode::Char('y')), Step::Order(order), "not after the choice");
    letters(&mut app, "p3153600000");
    let Some(Dialog::Promote(choice)) = &app.dialog else { panic!("it is open") };
    assert_eq!(choice.ttl_seconds, Some(315_360_000));
    for _ in 0..12 {
        press(&mut app, KeyCode::Backspace);
    }
    let Some(Dialog::Promote(choice)) = &app.dialog else { panic!("it is open") };
    assert_eq!(choice.ttl_seconds, None);
    press(&mut app, KeyCode::Esc);

    letters(&mut app, "nqé");
    press(&mut app, KeyCode::Enter);
    press(&mut app, KeyCode::Enter);
    let promotion = Promotion { mitigation: MITIGATIONS[0], split_factor: None, ttl_seconds: None };
    let order =
        Order::Promote { key: "qé".as_bytes().to_vec(), name: "qé".to_owned(), promotion };
    assert_eq!(press(&mut app, KeyCode::Char('y')), Step::Order(order));
}

#[test]
fn details_are_those_of_the_key_that_is_open() {
    let mut app = app();
    let watch = Step::Order(Order::Watch(Some(b"b".to_vec())));
    assert_eq!(press(&mut app, KeyCode::Enter), watch);
    let of = |hash: &str| {
        Message::Details(Some(Box::new(Details { hash: hash.to_owned(), ..Details::default() })))
    };
    app.hear(of("hash of a"));
    assert_eq!(app.details, None, "late, of another key");
    app.hear(of("hash of b"));
    assert!(app.details.is_some());
    app.hear(Message::Fleet(Box::default()));
    assert!(app.opened.as_ref().unwrap().hot.status.contains("not registered"));
    assert_eq!(press(&mut app, KeyCode::Esc), Step::Order(Order::Watch(None)));
    assert!(app.opened.is_none());
    assert_eq!(press(&mut app, KeyCode::Char('q')), Step::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.press(interrupt), Step::Quit);
}
