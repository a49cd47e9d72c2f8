//! The files of the page, over the wire. What they do is in `browser`.

use heatsink_admin::Settings;

use crate::rig::Rig;

#[test]
fn nothing_is_loaded_from_elsewhere() {
    let rig = Rig::start(Settings::default());
    let page = rig.get("/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    for part in ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    let text = page.text();
    for reference in text.split(['"', '\'']).filter(|part| part.starts_with(['/', 'h'])) {
        if let Some(path) = reference.strip_prefix('/') {
            assert_eq!(rig.get(&format!("/{path}")).status, 200, "{reference}");
        } else {
            assert!(!reference.starts_with("http"), "{reference}");
        }
    }
    let inline =
        text.match_indices("<script").filter(|(at, _)| !text[*at..].starts_with("<script src="));
    assert_eq!(inline.count(), 0);
    assert!(!text.contains(" style=") && !text.contains("<style"));
}

#[test]
fn the_script_never_makes_markup_of_text() {
    let rig = Rig::start(Settings::default());
    let script = rig.get("/app.js").text();
    for danger in
        ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
    {
        assert!(!script.contains(danger), "{danger}");
    }
}
