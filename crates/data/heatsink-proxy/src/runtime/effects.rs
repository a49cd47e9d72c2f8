//! Carries out the effects that rooms have noted; see [`crate::relay::effects`].

use crate::cluster::effects::{Effect as OfCluster, Question, Redirected};
use crate::cluster::replay::Outcome;
use crate::downstream::clients::error_line;
use crate::hot::mitigation::Reply;
use crate::observe::Mark;
use crate::relay::effects::Effect;
use crate::runtime::worker::Worker;
use crate::session::client_command::Answer;
use crate::session::switch::Session;
use crate::upstream::effects::Effect as OfLinks;
use crate::upstream::links::Failure;
use crate::upstream::ticket::{Purpose, Ticket};

impl Worker {
    /// Carries out the effects of the last call to a room.
    #[inline]
    pub(crate) fn apply_effects(&mut self) {
        if !self.relay.effects.is_empty() {
            self.apply_noted();
        }
    }

    #[cold]
    fn apply_noted(&mut self) {
        let mut noted = self.relay.effects.take();
        for effect in noted.drain(..) {
            self.apply(effect);
            // Effects of this effect are carried out before the next one.
            self.apply_effects();
        }
        self.relay.effects.give_back(noted);
    }

    fn apply(&mut self, effect: Effect) {
        let Self { relay, hot, .. } = self;
        match effect {
            Effect::Conclude(ticket, reply) => self.conclude(ticket, &reply),
            Effect::OfLinks(effect) => self.apply_of_links(effect),
            Effect::OfCluster(effect) => self.apply_of_cluster(effect),
            Effect::TrackedReady(link) => hot.tracking_ready(relay, link),
            Effect::Close(key) => self.close_client(key),
            Effect::CloseIfDone(key) => self.close_if_done(key),
        }
    }

    /// What the cluster wants done about requests.
    fn apply_of_cluster(&mut self, effect: OfCluster) {
        let Self { relay, hot, .. } = self;
        match effect {
            OfCluster::Conclude(ticket, reply) => self.conclude(ticket, &reply),
            OfCluster::GivenUp(mark) => self.give_up(mark),
            OfCluster::WrongType(refused) => hot.meet_fence(relay, *refused),
            OfCluster::GoElsewhere(redirected) => {
                let Redirected { way, from, ticket, request, error, standing } = *redirected;
                let (pool, serial) = way;
                relay.routing().end_redirect(ticket);
                if relay.upstream.pools.get(pool).map(|pool| pool.serial) == serial {
                    relay.routing().go_elsewhere(pool, from, ticket, request, &error, standing);
                } else {
                    self.conclude(ticket, &error_line("ERR heatsink: given up"));
                }
            }
            OfCluster::Resent(link, client) => hot.extend_fences(relay, link, client),
            OfCluster::LeavesEarly => hot.close_flights(),
            OfCluster::MapChanged => hot.map_changed(),
            OfCluster::SayAgain(key) => self.sessions().replay_dedicated(key, None, false),
            OfCluster::Ask(question) => {
                let Question { client, pool, probe, answer } = *question;
                let answer = Session::Answer(Answer::Bytes(answer));
                self.sessions().ask(client, pool, &probe, answer);
            }
            OfCluster::ListenAnew => self.sessions().listen_to_new_nodes(),
        }
    }

    /// What has become of links, and of those who waited on them.
    fn apply_of_links(&mut self, effect: OfLinks) {
        let Self { relay, hot, .. } = self;
        match effect {
            OfLinks::GivenUp(mark) => self.give_up(mark),
            OfLinks::Unanswered(ticket, failure) => self.leave_unanswered(ticket, &failure),
            OfLinks::ReplayedLost(replayed, ticket, failure) => {
                relay.routing().replay_answered(replayed, ticket, Outcome::Reply(failure.told()));
            }
            OfLinks::SendElsewhere(unsent) => relay.routing().send_elsewhere(*unsent),
            OfLinks::NodeFailed(node) => relay.routing().node_failed(node),
            OfLinks::NodeLost(node) => hot.forget_refusal(node),
            OfLinks::TrackedLost(generation) => hot.tracking_lost(generation),
            OfLinks::TrackingRefused(node, error) => hot.tracking_refused(node, &error),
            OfLinks::ListenerLost(generation) => hot.listener_lost(relay.now, generation),
            OfLinks::DedicatedLost(key, link, failure) => {
                self.sessions().dedicated_link_lost(key, link, &failure);
            }
            OfLinks::PoolGone(serial) => hot.forget_listening_pool(serial),
            OfLinks::PasswordRefused(pool, serial) => {
                if relay.upstream.pools.get(pool).is_some_and(|pool| pool.serial == serial) {
                    self.sessions().leave_shared_pool(pool);
                }
            }
        }
    }

    /// What a ticket waits for will not come.
    fn leave_unanswered(&mut self, ticket: Ticket, failure: &Failure) {
        let Self { relay, hot, .. } = self;
        match ticket.purpose {
            Purpose::Topology => relay.routing().forget_topology_question(),
            Purpose::Session => {
                relay.routing().end_redirect(ticket);
                self.sessions().session_failed(ticket, failure);
            }
            Purpose::Fill(_)
            | Purpose::FillFields(_)
            | Purpose::FillTtl(_)
            | Purpose::Combined(_) => {
                if ticket.is_for_many() {
                    relay.routing().end_redirect(ticket);
                }
                hot.on_reply(relay, ticket, Reply::Lost(&failure.told()));
            }
            _ => self.conclude(ticket, &failure.told()),
        }
    }

    fn give_up(&mut self, mark: Mark) {
        let Self { relay, hot, .. } = self;
        let inner = match mark {
            Mark::Hot(write) => hot.end_hot_write(relay, write, false),
            _ => mark,
        };
        relay.routing().give_up(inner);
    }
}
