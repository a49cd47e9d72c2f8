//! Which keys a request is counted for that did not go along a shared link.

use heatsink_resp::command::{Command, Role};

use crate::downstream::connection::ClientKey;
use crate::downstream::request::Request;
use crate::observe::Writer;
use crate::session::Sessions;
use crate::session::dedicated::Expected;

impl Sessions<'_> {
    /// Counts the keys of a request that did not go along a shared link. Those of a transaction are only
    /// noted, and counted when the server has executed it.
    pub(crate) fn observe_apart(
        &mut self,
        key: ClientKey,
        command: &Command,
        request: Request<'_>,
        queueing: bool,
    ) {
        let Some(observer) = &mut self.relay.observer else { return };
        let Some(client) = self.relay.clients.get(key).filter(|client| !client.within) else {
            return;
        };
        // Replies on the dedicated connection are matched with the requests that were noted for it: one
        // that went elsewhere, or was answered here, must not be noted.
        let dedicated = client.dedicated.as_mut().filter(|dedicated| dedicated.unmarked);
        if !queueing {
            // Left over from a `MULTI` that was refused.
            client.queued_keys = None;
            let mark = observer.sent_apart(Writer(key.slot), command, request);
            if let Some(dedicated) = dedicated
                && dedicated.expected.back() == Some(&Expected::Plain)
                && let Some(last) = dedicated.marks.back_mut()
            {
                *last = mark;
            }
            return;
        }
        match command.role {
            Role::Exec => {
                let queued = client.queued_keys.take();
                if let Some(dedicated) = dedicated
                    && dedicated.expected.back() == Some(&Expected::Exec)
                    && let Some(last) = dedicated.executing.back_mut()
                {
                    *last = queued;
                }
            }
            Role::Discard | Role::Reset | Role::Quit => client.queued_keys = None,
            // It is not queued, and nothing else is executed either.
            _ if command.refuses_count(request.len()) => {}
            _ => {
                let queued = client.queued_keys.get_or_insert_default();
                if !queued.add(command, request) {
                    let _ = observer.sent_apart(Writer(key.slot), command, request);
                }
            }
        }
    }
}
