//! Messages between the agent of the host and the advisor of a job.

use ropewalk_agent_link::{Kind, NO_END, ProgramLink, ToAgent, ToProgram};
use ropewalk_checkpoint_core::{Advice, Reason};

/// The advisor's link to its agent, which is asked now and then.
#[derive(Debug)]
pub(super) struct Announcements {
    link: ProgramLink,
    /// When was looked last, and steps were told last.
    looked: f64,
    told: f64,
    steps: u64,
    may_look: bool,
    /// A save was advised because the end is near.
    is_last_advised: bool,
}

/// An announced end, in seconds from now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Announced {
    /// The job is being ended.
    Notice(f64),
    /// The job's time is over then.
    KnownEnd(f64),
}

impl Announcements {
    /// How often is looked, in seconds: a look is a call of the system.
    const LOOK: f64 = 1e-3;
    /// How often steps are told, in seconds.
    const TELL: f64 = 0.25;

    /// The link of this rank, if it is one of a job.
    pub(super) fn of_job() -> Option<Self> {
        Some(Self::over(ProgramLink::from_env(Kind::Advisor)?))
    }

    fn over(link: ProgramLink) -> Self {
        Self {
            link,
            looked: f64::NEG_INFINITY,
            told: f64::NEG_INFINITY,
            steps: 0,
            may_look: false,
            is_last_advised: false,
        }
    }

    /// A step is over: it may be told, and it may be time to look.
    pub(super) fn step_end(&mut self, now: f64) {
        self.steps += 1;
        self.may_look = now - self.looked >= Self::LOOK;
        if self.may_look {
            self.looked = now;
        }
        if now - self.told >= Self::TELL {
            self.told = now;
            self.link.tell(ToAgent::Steps(self.steps));
        }
    }

    /// The next announcement; nothing if none is left.
    pub(super) fn next(&mut self) -> Option<Announced> {
        if !self.may_look {
            return None;
        }
        let seconds = |ms: u64| match ms {
            NO_END => LONG,
            ms => (ms as f64 / 1e3).min(LONG),
        };
        let announced = match self.link.receive() {
            Some(ToProgram::Notice { left_ms }) => Announced::Notice(seconds(left_ms)),
            Some(ToProgram::KnownEnd { left_ms }) => Announced::KnownEnd(seconds(left_ms)),
            None => {
                self.may_look = false;
                return None;
            }
        };
        Some(announced)
    }

    /// The program was given this advice.
    pub(super) fn advised(&mut self, advice: &Advice) {
        let is_last = matches!(
            advice.decision.reason,
            Reason::LimitIsNear | Reason::EndIsAnnounced
        );
        self.is_last_advised |= advice.decision.save && is_last;
    }

    /// A save is committed; it is told if it was made because of an end.
    pub(super) fn saved(&mut self, for_notice: bool) {
        if std::mem::take(&mut self.is_last_advised) || for_notice {
            self.link.tell(ToAgent::Saved);
        }
    }
}

/// An end that is further away than this counts as none, in seconds.
const LONG: f64 = 1e9;

#[cfg(test)]
mod tests {
    use ropewalk_agent_link::Listener;

    use super::*;
    use ropewalk_checkpoint_core::History;
    use ropewalk_checkpoint_core::{Advisor, AdvisorOptions};

    /// The advisor hears the agent's announcements at the end of a step, and tells it only of saves made for them.
    #[test]
    fn ends_are_heard_and_saves_told() {
        let listener = Listener::bind(format!("announcements-{}", std::process::id())).unwrap();
        let link = ProgramLink::connect(&listener.value_for(0), Kind::Advisor).unwrap();
        let mut announcements = Announcements::over(link);
        let agent = listener.accept().unwrap();
        let said = || std::iter::from_fn(|| agent.receive().unwrap()).collect::<Vec<_>>();
        said();
        announcements.step_end(1.0);
        assert_eq!(announcements.next(), None);
        announcements.saved(false);
        assert_eq!(said(), [ToAgent::Steps(1)]);
        agent.send(ToProgram::KnownEnd { left_ms: 5000 }).unwrap();
        agent.send(ToProgram::Notice { left_ms: NO_END }).unwrap();
        announcements.step_end(1.0001);
        assert_eq!(announcements.next(), None, "it has just looked");
        announcements.step_end(1.002);
        assert_eq!(announcements.next(), Some(Announced::KnownEnd(5.0)));
        assert_eq!(announcements.next(), Some(Announced::Notice(LONG)));
        assert_eq!(announcements.next(), None);
        let mut advisor = Advisor::new(&AdvisorOptions::default(), &History::default(), 0.0);
        advisor.preempt(LONG, 1.0);
        announcements.advised(&advisor.step_end(2.0));
        announcements.saved(false);
        assert_eq!(said(), [ToAgent::Saved]);
        announcements.saved(true);
        assert_eq!(said(), [ToAgent::Saved]);
    }
}
