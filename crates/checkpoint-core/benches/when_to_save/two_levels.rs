//! The gain of a fast way to save, as promised and as simulated.

use ropewalk_checkpoint_core::{AdvisorOptions, Costs, FastLevel, Mtbf, Rehearsal};

use crate::learning::{chance, mean};

/// A grid of costs and parts of failures that the fast way survives.
pub(crate) fn print(runs: u32) {
    // Each run is as long as a hundred of the paper's cavity.
    let runs = (runs / 100).max(20);
    println!("| MTBF, s | fast save, s | survives | promised | simulated | difference |");
    println!("|---|---|---|---|---|---|");
    for mtbf in [10.0, 25.0, 100.0] {
        for save in [0.01, 0.06, 0.1, 0.3] {
            for covers in [0.5, 0.8, 0.95, 0.99] {
                let (promised, found) = promised_and_found(mtbf, save, covers, runs);
                let [promised, found] = [promised, found].map(|part| part * 100.0);
                println!(
                    "| {mtbf} | {save} | {covers} | {promised:.1} % | {found:.1} % | {:+.1} |",
                    promised - found
                );
            }
        }
    }
}

/// By which part the overhead becomes smaller if there is a fast way to save beside one that takes 0.6 s.
fn promised_and_found(mtbf: f64, save: f64, covers: f64, runs: u32) -> (f64, f64) {
    const STEP: f64 = 0.05;
    let costs = Costs::new(0.6, 0.6, mtbf).expect("all are positive");
    let steps = vec![STEP; 40_000];
    let overhead = |fast: Option<(f64, f64)>| {
        let rehearsal = Rehearsal {
            steps: &steps,
            costs,
            fast,
        };
        let options = AdvisorOptions {
            mtbf: Mtbf::Known(mtbf),
            save: Some(0.6),
            restore: 0.6,
            fast: fast.map(|(save, covers)| FastLevel { save, covers }),
            ..AdvisorOptions::default()
        };
        let (mean, _) = mean(runs, 7, |seed| rehearsal.advised(&options, chance(seed)).total);
        mean / (STEP * steps.len() as f64) - 1.0
    };
    let (one, two) = (overhead(None), overhead(Some((save, covers))));
    (costs.saving_of_fast_level(save, covers), 1.0 - two / one)
}
