//! Questions, and what their answers do.

use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;
use ratatui::crossterm::event::KeyCode;

use super::{App, Step};
use crate::model::{Key, visible};
use crate::source::Order;

/// What can be chosen.
pub(crate) const MITIGATIONS: &[Mitigation] = Mitigation::ALL;

/// Letters that can be typed into a question.
const TYPED_MAX: usize = 512;

/// Physical keys that one may be split over.
const FACTORS: std::ops::RangeInclusive<u32> = 2..=1024;

/// What is asked.
#[derive(Debug)]
pub(crate) enum Dialog {
    /// Which mitigation a key shall get.
    Promote {
        key: Vec<u8>,
        name: String,
        /// The place in [`MITIGATIONS`].
        chosen: usize,
        split_factor: u32,
        /// The choice is made, and only a yes is missing.
        is_sure: bool,
    },
    /// Whether to take a key out of the registry.
    Demote {
        key: Vec<u8>,
        name: String,
    },
    /// Which key to promote.
    NewKey(String),
    /// Which keys to show.
    Filter(String),
    Help,
}

impl Dialog {
    pub(super) fn promote(key: Key) -> Self {
        let current = key.mitigation.split([' ', '*']).next().unwrap_or_default();
        let chosen = MITIGATIONS.iter().position(|one| one.name() == current).unwrap_or(0);
        Self::of(key.address, key.name, chosen)
    }

    pub(super) fn demote(key: Key) -> Self {
        Self::Demote { key: key.address, name: key.name }
    }

    fn of(key: Vec<u8>, name: String, chosen: usize) -> Self {
        Self::Promote { key, name, chosen, split_factor: *FACTORS.start(), is_sure: false }
    }
}

impl App {
    /// A key was pressed while `dialog` was open. Whatever is not an answer leaves it open.
    pub(super) fn answer(&mut self, dialog: Dialog, key: KeyCode) -> Step {
        if key == KeyCode::Esc {
            return Step::Draw;
        }
        match dialog {
            Dialog::Help => {}
            Dialog::Filter(mut text) => {
                if key == KeyCode::Enter {
                    return Step::Draw;
                }
                type_into(&mut text, key);
                self.filter.clone_from(&text);
                self.dialog = Some(Dialog::Filter(text));
            }
            Dialog::NewKey(mut text) => {
                self.dialog = Some(if key == KeyCode::Enter && !text.is_empty() {
                    let name = visible(&text);
                    Dialog::of(text.into_bytes(), name, 0)
                } else {
                    type_into(&mut text, key);
                    Dialog::NewKey(text)
                });
            }
            Dialog::Demote { key: hot, name } => match key {
                KeyCode::Char('y') => return Step::Order(Order::Demote { key: hot, name }),
                KeyCode::Char('n') => {}
                _ => self.dialog = Some(Dialog::Demote { key: hot, name }),
            },
            Dialog::Promote { key: hot, name, chosen, split_factor, is_sure } => {
                return self.answer_promote(key, hot, name, (chosen, split_factor, is_sure));
            }
        }
        Step::Draw
    }

    fn answer_promote(
        &mut self,
        pressed: KeyCode,
        key: Vec<u8>,
        name: String,
        (mut chosen, mut split_factor, mut is_sure): (usize, u32, bool),
    ) -> Step {
        let last = MITIGATIONS.len() - 1;
        let is_split = MITIGATIONS[chosen] == Mitigation::Split;
        match pressed {
            KeyCode::Char('y') if is_sure => {
                let promotion = Promotion {
                    mitigation: MITIGATIONS[chosen],
                    split_factor: is_split.then_some(split_factor),
                    ttl_seconds: None,
                };
                return Step::Order(Order::Promote { key, name, promotion });
            }
            KeyCode::Char('n') if is_sure => return Step::Draw,
            KeyCode::Enter => is_sure = true,
            KeyCode::Up | KeyCode::Char('k') if !is_sure => chosen = chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') if !is_sure => chosen = (chosen + 1).min(last),
            KeyCode::Left if !is_sure && is_split => {
                split_factor = (split_factor / 2).max(*FACTORS.start());
            }
            KeyCode::Right if !is_sure && is_split => {
                split_factor = (split_factor * 2).min(*FACTORS.end());
            }
            _ => {}
        }
        self.dialog = Some(Dialog::Promote { key, name, chosen, split_factor, is_sure });
        Step::Draw
    }
}

fn type_into(text: &mut String, key: KeyCode) {
    match key {
        KeyCode::Char(letter) if text.len() < TYPED_MAX => text.push(letter),
        KeyCode::Backspace => {
            text.pop();
        }
        _ => {}
    }
}
