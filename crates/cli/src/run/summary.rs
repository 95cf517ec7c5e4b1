//! The cost of the saves of a job, and their expected cost at fixed periods.

use std::{fmt::Write, path::PathBuf, time::Duration};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use ropewalk_checkpoint::{Account, Costs, Totals};
use ropewalk_plot::WIDTH;
use serde_json::{Value, json};

use super::{
    super::{
        page::{TimeAxis, begin_drawing},
        times::{part, shown},
    },
    saving::Saving,
};

/// A job with checkpoints, seen from its end. Times are in seconds.
#[derive(Debug)]
pub(super) struct Summary {
    /// From the begin of the first attempt to the end of the last.
    pub(super) total: f64,
    pub(super) saving: Option<Saving>,
    /// The generations in quarantine, and where that is.
    pub(super) in_quarantine: Option<(Vec<u64>, PathBuf)>,
    pub(super) account: Account,
}

impl Summary {
    /// Name and value of each line.
    fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
        line("attempts", self.account.attempt_count.to_string());
        line("failures", self.account.failures.to_string());
        if self.account.repeated > 0 {
            line("the same again", self.account.repeated.to_string());
        }
        line("total", shown(self.total));
        let of_journal = |value: &dyn Fn(&Totals) -> String| match &self.account.totals {
            Some(totals) => value(totals),
            None => NOT_KNOWN.to_owned(),
        };
        let saves = of_journal(&|all| often(all.saves, all.save_seconds));
        line("saves", saves);
        if let Some(saving) = self.saving.filter(|saving| saving.failed > 0) {
            let since = match saving.unprotected_since {
                Some(since) => {
                    let since = since.as_secs_f64();
                    let for_how_long = shown((self.total - since).max(0.0));
                    format!(", unprotected since {} (for {for_how_long})", shown(since))
                }
                None => String::new(),
            };
            line("saves that failed", format!("{}{since}", saving.failed));
        }
        let restores = of_journal(&|all| often(all.restores, all.restore_seconds));
        line("restores", restores);
        line("lost work", of_journal(&|all| shown(all.lost)));
        let around = of_journal(&|all| {
            let told = all.exposure - self.account.starting;
            shown((self.account.attempts_lasted.as_secs_f64() - told).max(0.0))
        });
        line("starting and ending the program", around);
        let between = (self.total - self.account.attempts_lasted.as_secs_f64()).max(0.0);
        line("back-off between attempts", shown(between));
        if self.account.quarantined > 0 {
            line(
                "put aside",
                format!("{} parts of saves", self.account.quarantined),
            );
        }
        if let Some((generations, folder)) = &self.in_quarantine {
            let generations: Vec<String> = generations.iter().map(u64::to_string).collect();
            let text = format!("generation {} in {}", generations.join(" and "), folder.display());
            line("in quarantine", text);
        }
        let learned = if self.account.mtbf_is_known {
            "given"
        } else {
            "learned"
        };
        line(
            "mean time between failures",
            format!("{}, {learned}", shown(self.account.mtbf)),
        );
        let measured = match (self.measured_overhead(), self.account.totals) {
            (Some(overhead), _) => part(overhead),
            (None, Some(_)) => NONE.to_owned(),
            (None, None) => NOT_KNOWN.to_owned(),
        };
        line("measured overhead", measured);
        if let Some(costs) = self.costs() {
            line("expected overhead", part(costs.overhead()));
            line("best interval", shown(costs.interval()));
            for (period, overhead) in self.periods(&costs) {
                line(&format!("fixed: every {}", shown(period)), part(overhead));
            }
        }
        lines
    }

    fn costs(&self) -> Option<Costs> {
        let save = self.account.save?;
        Costs::new(
            save,
            self.account.restore.unwrap_or(save),
            self.account.cautious_mtbf,
        )
        .ok()
    }

    /// Saves, restores and lost work as a part of the computing that was not lost: what [`Costs::overhead`]
    /// counts. `None` if no computing was left, but for rounding.
    fn measured_overhead(&self) -> Option<f64> {
        let Totals {
            exposure,
            save_seconds,
            restore_seconds,
            lost,
            ..
        } = self.account.totals?;
        let ran = exposure - self.account.starting;
        let useful = ran - save_seconds - restore_seconds - lost;
        (useful > USEFUL_LEAST * ran).then(|| ran / useful - 1.0)
    }

    /// Other periods and their expected overheads: powers of four around the best period.
    fn periods(&self, costs: &Costs) -> Vec<(f64, f64)> {
        [1.0 / 16.0, 0.25, 1.0, 4.0, 16.0]
            .into_iter()
            .map(|factor| costs.interval() * factor)
            .map(|period| (period, costs.run(1.0, period) - 1.0))
            .collect()
    }

    /// The table's lines about saves, as an object for the log.
    pub(super) fn to_json(&self) -> Value {
        let total = Duration::try_from_secs_f64(self.total).unwrap_or_default();
        let mut object = match self.saving {
            Some(saving) => saving.to_json("saving", total),
            None => json!({"event": "saving"}),
        };
        let generations = self.in_quarantine.as_ref().map(|(generations, _)| generations);
        object["attempts"] = self.account.attempt_count.into();
        object["failures"] = self.account.failures.into();
        object["failures_repeated"] = self.account.repeated.into();
        object["mtbf_s"] = self.account.mtbf.into();
        object["put_aside"] = self.account.quarantined.into();
        object["in_quarantine"] = json!(generations.map_or(&[][..], Vec::as_slice));
        object
    }

    /// The table for a terminal.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        for (name, value) in self.lines() {
            table.add_row([name, value]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// A part of a page, with the table, the attempts, and the cost of every period. It wants [`STYLE`].
    pub(super) fn section(&self) -> String {
        let rows: String = self
            .lines()
            .iter()
            .map(|(name, value)| format!("<tr><th>{name}</th><td>{value}</td></tr>\n"))
            .collect();
        let periods = self.costs().map_or_else(String::new, |costs| {
            format!(
                "<figure><figcaption>Expected overhead at every period</figcaption>{}</figure>\n",
                draw_periods(&costs)
            )
        });
        format!(
            "<h2>What saving cost</h2>\n<table>\n{rows}</table>\n\
             <figure><figcaption>Attempts, and the steps from which they began and that they saved</figcaption>{}\
             </figure>\n\
             {periods}",
            self.draw_attempts()
        )
    }

    /// A bar for each attempt.
    fn draw_attempts(&self) -> String {
        let axis = TimeAxis {
            length: Duration::from_secs_f64(self.total.max(1e-3)),
        };
        let bottom = LANE * self.account.attempts.len() as f64;
        let mut svg = begin_drawing(bottom + 24.0);
        for (attempt, lane) in self.account.attempts.iter().zip(0u32..) {
            let (x, width) = axis.bar(attempt.began, attempt.began + attempt.lasted);
            let (y, end) = (LANE * f64::from(lane), x + width);
            let class = if attempt.failed { "failed" } else { "done" };
            let text = format!("step {} to {}", attempt.from_step, attempt.to_step);
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x:.2}%\" y=\"{:.1}\" width=\"{width:.2}%\" height=\"{:.1}\">\
                 <title>attempt {}, {class}: {text}</title></rect>",
                y + 2.0,
                LANE - 4.0,
                lane + 1
            );
            let (anchor, at, apart) = match (x, end) {
                (_, ..50.0) => ("start", end, 6),
                (50.0.., _) => ("end", x, -6),
                // There is room on the bar only.
                _ => ("start", x, 6),
            };
            let _ = writeln!(
                svg,
                "<text x=\"{at:.2}%\" dx=\"{apart}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{text}</text>",
                y + LANE - 6.0
            );
        }
        axis.draw(&mut svg, bottom);
        svg.push_str("</svg>");
        svg
    }
}

/// The curve of the overhead over the period, from a sixteenth of the best one to sixteen times it.
fn draw_periods(costs: &Costs) -> String {
    const HEIGHT: f64 = 240.0;
    const TOP: f64 = 16.0;
    let overhead = |power: f64| costs.run(1.0, costs.interval() * 2f64.powf(power)) - 1.0;
    let most = (4.0 * costs.overhead()).max(1e-9);
    let x = |power: f64| (power + 4.0) / 8.0 * WIDTH;
    let y = |overhead: f64| TOP + (1.0 - (overhead / most).min(1.0)) * (HEIGHT - TOP);
    let points: Vec<String> = (0..=160)
        .map(|at| f64::from(at) / 20.0 - 4.0)
        .map(|power| format!("{:.1},{:.1}", x(power), y(overhead(power))))
        .collect();
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\n<polyline class=\"curve\" points=\"{}\"/>\n",
        HEIGHT + 24.0,
        points.join(" ")
    );
    for power in [-4.0, -2.0, 0.0, 2.0, 4.0] {
        let anchor = match power {
            -4.0 => "start",
            4.0 => "end",
            _ => "middle",
        };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}: {}</text>",
            x(power),
            HEIGHT + 18.0,
            shown(costs.interval() * 2f64.powf(power)),
            part(overhead(power))
        );
    }
    let _ = writeln!(
        svg,
        "<circle class=\"best\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"/></svg>",
        x(0.0),
        y(costs.overhead())
    );
    svg
}

fn often(count: u64, seconds: f64) -> String {
    format!("{count}, {} in all", shown(seconds))
}

/// In the place of a figure.
const NOT_KNOWN: &str = "not known";

/// In the place of a figure that there is none of.
const NONE: &str = "-";

/// A smaller part of a job's time cannot be told from the rounding of what is taken from it.
const USEFUL_LEAST: f64 = 1e-6;

const LANE: f64 = 22.0;

/// For [`Summary::section`].
pub(super) const STYLE: &str = "
.failed { fill: #c83232; }
.done { fill: #3f9d6b; }
.curve { fill: none; stroke: #6a9fd8; stroke-width: 2; }
.best { fill: #3f9d6b; }
";

#[cfg(test)]
pub(super) mod tests {
    use ropewalk_checkpoint::PastAttempt;

    use super::*;

    pub(in super::super) fn summary() -> Summary {
        Summary {
            total: 130.0,
            saving: Some(Saving {
                saves: 10,
                failed: 3,
                saved_at: None,
                unprotected_since: Some(Duration::from_secs(90)),
            }),
            in_quarantine: Some((vec![7, 9], PathBuf::from("/saves/quarantine"))),
            account: Account {
                totals: Some(Totals {
                    exposure: 125.0,
                    failures: 1,
                    saves: 10,
                    save_seconds: 10.0,
                    restores: 1,
                    restore_seconds: 5.0,
                    lost: 5.0,
                    hosts_lost: 0,
                    failed_saves: 3,
                }),
                failing: None,
                attempts_lasted: Duration::from_secs(128),
                starting: 5.0,
                mtbf: 50.0,
                mtbf_is_known: true,
                cautious_mtbf: 50.0,
                save: Some(1.0),
                restore: Some(5.0),
                quarantined: 2,
                attempt_count: 2,
                failures: 1,
                repeated: 0,
                attempts: vec![
                    PastAttempt {
                        began: Duration::ZERO,
                        lasted: Duration::from_secs(60),
                        failed: true,
                        from_step: 0,
                        to_step: 50,
                    },
                    PastAttempt {
                        began: Duration::from_secs(65),
                        lasted: Duration::from_secs(65),
                        failed: false,
                        from_step: 50,
                        to_step: 100,
                    },
                ],
            },
        }
    }

    /// Saves, restores and lost work are the overhead; to start the program and to wait between attempts have
    /// their own lines.
    #[test]
    fn the_overhead_is_measured() {
        assert!((summary().measured_overhead().unwrap() - 0.2).abs() < 1e-9);
        let lines = summary().lines();
        for (name, value) in [
            ("measured overhead", "20.00 %"),
            ("saves", "10, 10.00 s in all"),
            ("starting and ending the program", "8.00 s"),
            ("back-off between attempts", "2.00 s"),
            ("saves that failed", "3, unprotected since 90.00 s (for 40.00 s)"),
            ("mean time between failures", "50.00 s, given"),
        ] {
            assert!(lines.contains(&(name.to_owned(), value.to_owned())), "{lines:?}");
        }
        let table = summary().table();
        for expected in ["2 parts of saves", "generation 7 and 9 in /saves/quarantine"] {
            assert!(table.contains(expected), "{table}");
        }
    }

    /// If failures come as often as learned, the measured overhead is the expected one.
    #[test]
    fn measured_and_expected_count_the_same() {
        let costs = Costs::new(1.0, 5.0, 50.0).unwrap();
        let (work, segments) = (costs.interval() * 1000.0, 1000.0);
        let ran = costs.run(work, costs.interval());
        let restores = ran / 50.0;
        let mut summary = summary();
        summary.total = ran + 300.0;
        summary.account.starting = 100.0;
        summary.account.totals = Some(Totals {
            exposure: ran + 100.0,
            save_seconds: segments,
            restore_seconds: 5.0 * restores,
            lost: ran - work - segments - 5.0 * restores,
            ..Totals::default()
        });
        let measured = summary.measured_overhead().unwrap();
        assert!((measured - costs.overhead()).abs() < 1e-9, "{measured}");
        assert_eq!(summary.costs().unwrap().overhead(), costs.overhead());
    }

    /// A job of which everything was lost took no number of times as long as what is left.
    #[test]
    fn without_useful_work_there_is_no_overhead() {
        for lost in [105.0, 105.0 - 1e-9, 106.0] {
            let mut summary = summary();
            summary.account.totals.as_mut().unwrap().lost = lost;
            assert_eq!(summary.measured_overhead(), None);
            let line = ("measured overhead".to_owned(), "-".to_owned());
            assert!(summary.lines().contains(&line), "{:?}", summary.lines());
        }
    }

    /// Where nobody could tell what was saved, no figure stands for it.
    #[test]
    fn what_is_not_known_has_no_figure() {
        let mut summary = summary();
        summary.saving = None;
        summary.account.totals = None;
        summary.account.save = None;
        summary.account.restore = None;
        let lines = summary.lines();
        let unknown = lines.iter().filter(|(_, value)| value == NOT_KNOWN);
        let unknown: Vec<_> = unknown.map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            unknown,
            [
                "saves",
                "restores",
                "lost work",
                "starting and ending the program",
                "measured overhead"
            ]
        );
        assert!(lines.contains(&("failures".to_owned(), "1".to_owned())));
    }

    /// The section draws each attempt and the curve; a job that measured no save has no curve.
    #[test]
    fn the_section_is_drawn() {
        let text = summary().section();
        assert!(text.contains("attempt 1, failed: step 0 to 50") && text.contains("attempt 2, done"));
        assert!(text.contains("<polyline"));
        let mut without = summary();
        without.account.save = None;
        assert!(!without.section().contains("<polyline"));
    }
}
