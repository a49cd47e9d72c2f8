//! Looks: with colours, or by weight alone.

use ratatui::style::{Color, Modifier, Style};

/// How each kind of text looks.
pub(super) struct Styles {
    pub(super) title: Style,
    pub(super) strong: Style,
    pub(super) muted: Style,
    pub(super) good: Style,
    pub(super) warm: Style,
    pub(super) bad: Style,
    pub(super) hot: Style,
    pub(super) cool: Style,
    pub(super) header: Style,
    pub(super) chosen: Style,
}

impl Styles {
    /// Only the sixteen colours that a terminal's own theme decides, so that they can be read
    /// on any ground.
    pub(super) fn new(colours: bool) -> Self {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let coloured = |style: Style, colour| if colours { style.fg(colour) } else { style };
        Self {
            title: coloured(bold, Color::Red),
            strong: bold,
            muted: plain.add_modifier(Modifier::DIM),
            good: coloured(plain, Color::Green),
            warm: coloured(plain, Color::Yellow),
            bad: coloured(bold, Color::Red),
            hot: coloured(plain, Color::Red),
            cool: coloured(plain, Color::Blue),
            header: plain.add_modifier(Modifier::UNDERLINED),
            chosen: plain.add_modifier(Modifier::REVERSED),
        }
    }
}
