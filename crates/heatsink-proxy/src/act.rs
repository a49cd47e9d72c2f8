//! Carries a [`Decision`] out.

use crate::connection::{ClientKey, Lost};
use crate::decide::{Decision, LostStep};
use crate::intake::Flow;
use crate::request::Request;
use crate::worker::Worker;

impl Worker {
    /// Does what was decided, or says that it has to wait.
    pub(crate) fn carry_out(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        decision: Decision,
    ) -> Flow {
        match decision {
            Decision::Forward => {
                self.forward(key, request.bytes, 1);
                Flow::Taken
            }
            Decision::Own(expected) => self.send_own(key, request.bytes, expected),
            Decision::OwnWait => self.send_wait(key, request.bytes),
            Decision::Takeover => self.open_tunnel(key, request.bytes),
            Decision::Auth => self.auth(key, request),
            Decision::Hello => self.hello(key, request),
            Decision::Select => self.select(key, request),
            Decision::Client => self.client_command(key, request),
            Decision::Reset => {
                self.reset(key);
                Flow::Taken
            }
            Decision::Quit => {
                self.clients.reply(key, b"+OK\r\n");
                self.clients.close_after_replies(key);
                Flow::Taken
            }
            Decision::Hangup => {
                tracing::warn!("a client that speaks HTTP was hung up on");
                self.close_client(key);
                Flow::Taken
            }
            Decision::Lost(step) => {
                self.step_lost(key, step);
                Flow::Taken
            }
        }
    }

    /// Brings a lost transaction to its end without anything of it being executed.
    pub(crate) fn step_lost(&mut self, key: ClientKey, step: LostStep) {
        let endpoint = self.shared.dialer.endpoint().to_string();
        let Some(client) = self.clients.get(key) else { return };
        match step {
            LostStep::Begin => {
                client.lost = Lost::Transaction;
                self.clients.reply(key, b"+OK\r\n");
            }
            LostStep::Refuse => {
                let text = format!(
                    "ERR heatsink: upstream {endpoint} unavailable: \
                     the connection of this transaction was lost, nothing of it is executed"
                );
                self.clients.error(key, &text);
            }
            LostStep::Abort => {
                client.lost = Lost::Nothing;
                let text = "EXECABORT Transaction discarded because of previous errors.";
                self.clients.error(key, text);
            }
            LostStep::Forget | LostStep::Unwatch => {
                client.lost = Lost::Nothing;
                self.clients.reply(key, b"+OK\r\n");
            }
        }
    }
}
