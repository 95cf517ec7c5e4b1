//! Tests of what comes of an announced end.

use ropewalk_membership::Cause;

use super::{
    super::{
        Action, SIGKILL, SIGTERM, Supervisor,
        tests::{SECOND, depart, report, signals, supervisor_of, up, verdict},
    },
    *,
};
use crate::{job::OnFailure, protocol::Report, restart::RestartPolicy};

const GRACE: Duration = JobSpec::GRACE;
const DIRECTORY: u16 = 7;

/// A job of two ranks on two hosts, each with a store, and an advisor in rank 0.
fn advised() -> Supervisor {
    let mut supervisor = supervisor_of("a:1,b:1", OnFailure::Restart(RestartPolicy::default()));
    say(&mut supervisor, 0, 0, LinkNews::Advisor);
    for rank in [0, 1] {
        let directory = DIRECTORY;
        say(&mut supervisor, rank, 1, LinkNews::Store { directory });
    }
    assert_eq!(announced(&mut supervisor).len(), 1, "the time limit is known");
    supervisor
}

/// Rank and host have the same number.
fn say(supervisor: &mut Supervisor, rank: u32, link: u32, news: LinkNews) {
    let rank_of_host = Rank(rank);
    let told = Report::Link {
        rank: rank_of_host,
        link,
        news,
    };
    supervisor.handle_up(SECOND, up(rank, told));
}

/// The announcements since the last call; nobody was sent a signal.
fn announced(supervisor: &mut Supervisor) -> Vec<AnnouncedEnd> {
    std::iter::from_fn(|| supervisor.poll_action())
        .filter_map(|action| match action {
            Action::Send(
                Down::Order(Order::Announce { end, .. }) | Down::To(_, Order::Announce { end, .. }),
            ) => Some(end),
            Action::Send(Down::Order(Order::Signal { .. } | Order::Forward { .. })) => {
                panic!("{action:?}")
            }
            _ => None,
        })
        .collect()
}

fn commit(supervisor: &mut Supervisor, rank: u32, generation: u64) {
    say(supervisor, rank, 1, LinkNews::Committed { generation });
}

fn end(supervisor: &mut Supervisor, now: Duration) -> (i32, Ending) {
    for host in [0, 1] {
        supervisor.handle_up(now, up(host, Report::Finished));
    }
    let verdict = verdict(supervisor);
    (verdict.exit_code(), verdict.ending)
}

/// SIGTERM asks the advisor to save; the job is ended when all ranks have committed what rank 0 had committed
/// when its advisor said so, and no earlier.
#[test]
fn a_job_saves_before_it_is_ended() {
    let mut supervisor = advised();
    for rank in [0, 1] {
        commit(&mut supervisor, rank, 4);
    }
    supervisor.handle_interrupt(2 * SECOND, SIGTERM);
    let left_ms = Some(9_000);
    assert_eq!(announced(&mut supervisor), [AnnouncedEnd::Notice { left_ms }]);
    commit(&mut supervisor, 0, 5);
    say(&mut supervisor, 0, 0, LinkNews::Saved);
    assert_eq!(announced(&mut supervisor), [], "rank 1 has not saved");
    commit(&mut supervisor, 1, 5);
    assert_eq!(signals(&mut supervisor), [SIGTERM]);
    assert_eq!(
        supervisor.deadline(),
        Some(SECOND + GRACE),
        "the grace is as it was"
    );
    depart(&mut supervisor, 3 * SECOND, 0, Cause::Signalled(15), false);
    let ending = Ending::Interrupted(SIGTERM);
    assert_eq!(end(&mut supervisor, 3 * SECOND), (75, ending));
}

/// A job that does not save is asked to end when a tenth of its grace is left, and killed when the grace is over.
#[test]
fn a_job_that_cannot_save_is_ended() {
    let mut supervisor = advised();
    supervisor.handle_interrupt(2 * SECOND, SIGTERM);
    announced(&mut supervisor);
    assert_eq!(supervisor.deadline(), Some(11 * SECOND));
    supervisor.handle_timeout(10 * SECOND);
    assert_eq!(signals(&mut supervisor), []);
    supervisor.handle_timeout(11 * SECOND);
    assert_eq!(signals(&mut supervisor), [SIGTERM]);
    assert_eq!(supervisor.deadline(), Some(12 * SECOND));
    supervisor.handle_timeout(12 * SECOND);
    assert_eq!(signals(&mut supervisor), [SIGKILL]);
    let ending = Ending::Interrupted(SIGTERM);
    assert_eq!(end(&mut supervisor, 12 * SECOND), (143, ending));
}

/// A second signal leaves no time, also while the job saves.
#[test]
fn a_second_signal_shortens_the_grace() {
    let mut supervisor = advised();
    supervisor.handle_interrupt(2 * SECOND, SIGTERM);
    announced(&mut supervisor);
    supervisor.handle_insistence(3 * SECOND, SIGTERM);
    assert_eq!(signals(&mut supervisor), [SIGKILL]);
    let ending = Ending::Interrupted(SIGTERM);
    assert_eq!(end(&mut supervisor, 3 * SECOND), (143, ending));
}

/// Without an advisor SIGTERM ends the job at once, and so does ^C with one.
#[test]
fn who_cannot_or_will_not_save_is_ended_at_once() {
    let mut alone = supervisor_of("", OnFailure::Abort);
    alone.handle_interrupt(SECOND, SIGTERM);
    assert_eq!(signals(&mut alone), [SIGTERM]);
    assert_eq!(alone.deadline(), Some(SECOND + GRACE));
    let mut gone = advised();
    say(&mut gone, 0, 0, LinkNews::Gone);
    gone.handle_interrupt(SECOND, SIGTERM);
    assert_eq!(signals(&mut gone), [SIGTERM]);
    let mut interactive = advised();
    interactive.handle_interrupt(SECOND, 2);
    assert_eq!(signals(&mut interactive), [2]);
}

/// The advisor knows the time limit. A job that has saved for it is ended then, another is asked to save.
#[test]
fn a_time_limit_is_known_beforehand() {
    for has_saved in [true, false] {
        let mut supervisor = supervisor_of("", OnFailure::Abort);
        report(&mut supervisor, SECOND, link(0, LinkNews::Advisor));
        let known = AnnouncedEnd::Known { left_ms: 59_000 };
        assert_eq!(announced(&mut supervisor), [known]);
        if has_saved {
            report(&mut supervisor, SECOND, link(0, LinkNews::Saved));
        }
        assert_eq!(supervisor.deadline(), Some(60 * SECOND));
        supervisor.handle_timeout(60 * SECOND);
        if !has_saved {
            let notice = AnnouncedEnd::Notice { left_ms: Some(9_000) };
            assert_eq!(announced(&mut supervisor), [notice]);
            report(&mut supervisor, 61 * SECOND, link(0, LinkNews::Saved));
        }
        assert_eq!(signals(&mut supervisor), [SIGTERM]);
        report(&mut supervisor, 61 * SECOND, Report::Finished);
        let verdict = verdict(&mut supervisor);
        assert_eq!((verdict.exit_code(), verdict.saved), (75, true));
        assert_eq!(verdict.ending, Ending::TimedOut(60 * SECOND));
    }
}

fn link(link: u32, news: LinkNews) -> Report {
    let rank = Rank(0);
    Report::Link { rank, link, news }
}

/// SIGUSR1, to the launcher or an agent, is a notice without an end if there is an advisor, and is handed on otherwise.
#[test]
fn a_warning_is_a_notice_for_those_who_can_save() {
    for to_agent in [false, true] {
        let warn = |supervisor: &mut Supervisor| match to_agent {
            false => supervisor.handle_user_signal(SECOND, SIGUSR1),
            true => supervisor.handle_up(SECOND, up(1, Report::Signalled { signal: SIGUSR1 })),
        };
        let mut alone = supervisor_of("a:1,b:1", OnFailure::Abort);
        warn(&mut alone);
        let is_forward = |action: Action| {
            matches!(
                action,
                Action::Send(
                    Down::Order(Order::Forward { signal: SIGUSR1 }) | Down::To(_, Order::Forward { .. })
                )
            )
        };
        assert!(alone.poll_action().is_some_and(is_forward));
        let mut supervisor = advised();
        supervisor.notices.limit = None;
        warn(&mut supervisor);
        let left_ms = None;
        assert_eq!(announced(&mut supervisor), [AnnouncedEnd::Notice { left_ms }]);
        assert_eq!(supervisor.deadline(), None, "nobody ends it by force");
        warn(&mut supervisor);
        assert_eq!(announced(&mut supervisor), [], "it is told once");
        say(&mut supervisor, 0, 0, LinkNews::Saved);
        assert_eq!(signals(&mut supervisor), [SIGTERM]);
        let ending = Ending::Interrupted(SIGUSR1);
        assert_eq!(end(&mut supervisor, 2 * SECOND), (75, ending));
    }
}

/// SIGTERM after SIGUSR1 gives the job an end, and the agents' SIGTERM is the launcher's.
#[test]
fn a_notice_may_get_an_end() {
    let mut supervisor = advised();
    supervisor.handle_user_signal(SECOND, SIGUSR1);
    let left_ms = Some(59_000);
    assert_eq!(announced(&mut supervisor), [AnnouncedEnd::Notice { left_ms }]);
    for host in [0, 1] {
        supervisor.handle_up(2 * SECOND, up(host, Report::Signalled { signal: SIGTERM }));
    }
    let left_ms = Some(9_000);
    assert_eq!(announced(&mut supervisor), [AnnouncedEnd::Notice { left_ms }]);
    supervisor.handle_timeout(11 * SECOND);
    assert_eq!(signals(&mut supervisor), [SIGTERM]);
    let ending = Ending::Interrupted(SIGTERM);
    assert_eq!(end(&mut supervisor, 12 * SECOND), (143, ending));
}

/// A failure while the job saves is no reason to start it again, and a program that ends by itself has done its work.
#[test]
fn a_notice_is_the_reason_for_the_end() {
    let mut failed = advised();
    failed.handle_interrupt(SECOND, SIGTERM);
    announced(&mut failed);
    depart(&mut failed, 2 * SECOND, 0, Cause::Exited(3), false);
    assert_eq!(signals(&mut failed), [SIGTERM]);
    let ending = Ending::Interrupted(SIGTERM);
    assert_eq!(end(&mut failed, 2 * SECOND), (143, ending));
    let mut done = advised();
    done.handle_interrupt(SECOND, SIGTERM);
    for rank in [0, 1] {
        depart(&mut done, 2 * SECOND, rank, Cause::Exited(0), false);
    }
    assert_eq!(end(&mut done, 2 * SECOND), (0, Ending::Completed));
}

/// The end of an allocation counts only for jobs that can save, which leave the batch script time to start them again.
#[test]
fn an_allocation_ends_early_enough() {
    let mut supervisor = supervisor_of("", OnFailure::Abort);
    supervisor.set_notices(GRACE, Some(50 * SECOND));
    assert_eq!(supervisor.deadline(), Some(60 * SECOND));
    report(&mut supervisor, SECOND, link(0, LinkNews::Advisor));
    assert_eq!(
        announced(&mut supervisor),
        [AnnouncedEnd::Known { left_ms: 34_000 }]
    );
    supervisor.handle_timeout(35 * SECOND);
    let left_ms = Some(9_000);
    assert_eq!(announced(&mut supervisor), [AnnouncedEnd::Notice { left_ms }]);
    report(&mut supervisor, 36 * SECOND, link(0, LinkNews::Saved));
    assert_eq!(signals(&mut supervisor), [SIGTERM]);
    report(&mut supervisor, 36 * SECOND, Report::Finished);
    let verdict = verdict(&mut supervisor);
    assert_eq!(
        (verdict.exit_code(), verdict.ending),
        (75, Ending::AllocationOver)
    );
}

/// The job's clock stands still while the job is suspended; that of the batch system does not, and ends the allocation.
#[test]
fn an_allocation_goes_on_while_the_job_is_suspended() {
    let mut supervisor = supervisor_of("", OnFailure::Abort);
    supervisor.set_notices(GRACE, Some(50 * SECOND));
    report(&mut supervisor, SECOND, link(0, LinkNews::Advisor));
    assert_eq!(supervisor.deadline(), Some(35 * SECOND));
    supervisor.handle_resumed(SECOND, 20 * SECOND);
    assert_eq!(supervisor.deadline(), Some(15 * SECOND));
}
