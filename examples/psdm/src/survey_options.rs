//! The parameters of a survey, from which everything else follows.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::{Grid, MigrationOptions};

/// The parameters of a survey. The same parameters give the same survey, bit for bit, on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurveyOptions {
    /// Varies the places of the diffractors and the depths of the layers a little.
    pub seed: u64,
    /// How much there is to do.
    pub size: SurveySize,
}

/// How much there is to model and to migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SurveySize {
    /// 5.1 km x 2.6 km, 42 shots: gathers of 16 MiB.
    Demo,
    /// 1 km x 0.8 km, 20 shots, for tests.
    Small,
}

impl SurveyOptions {
    /// The layout of the survey.
    pub fn layout(&self) -> Layout {
        match self.size {
            SurveySize::Demo => Layout {
                grid: Grid {
                    columns: 512,
                    rows: 256,
                    spacing_m: 10.0,
                },
                shots: 42,
                shot_first_column: 6,
                shot_interval_columns: 12,
                receiver_interval_columns: 3,
                receivers_per_side: 64,
                peak_frequency_hz: 15.0,
                sample_interval_us: 4000,
                samples: 700,
            },
            SurveySize::Small => Layout {
                grid: Grid {
                    columns: 200,
                    rows: 160,
                    spacing_m: 5.0,
                },
                shots: 20,
                shot_first_column: 4,
                shot_interval_columns: 10,
                receiver_interval_columns: 2,
                receivers_per_side: 32,
                peak_frequency_hz: 25.0,
                sample_interval_us: 2000,
                samples: 500,
            },
        }
    }
}

/// Where shots and receivers stand, and what is recorded: split spreads that roll along the line and lose the
/// receivers that would stand outside of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    /// The grid of the earth model and of the image.
    pub grid: Grid,
    /// Number of shots.
    pub shots: usize,
    /// The column of the first shot.
    pub shot_first_column: usize,
    /// From shot to shot, in columns.
    pub shot_interval_columns: usize,
    /// From receiver to receiver, in columns.
    pub receiver_interval_columns: usize,
    /// Receivers on each side of the shot.
    pub receivers_per_side: usize,
    /// The peak frequency of the Ricker wavelet, in Hz.
    pub peak_frequency_hz: f32,
    /// The sample interval of the traces, in microseconds.
    pub sample_interval_us: u16,
    /// Samples in a trace.
    pub samples: u16,
}

impl Layout {
    /// The column of a shot.
    pub fn shot_column(&self, shot: usize) -> usize {
        self.shot_first_column + shot * self.shot_interval_columns
    }

    /// The columns of the receivers of a shot, from left to right.
    pub fn receiver_columns(&self, shot: usize) -> Vec<usize> {
        let source = self.shot_column(shot);
        let distances = 1..=self.receivers_per_side;
        let left = distances
            .clone()
            .rev()
            .filter_map(|number| source.checked_sub(number * self.receiver_interval_columns));
        let right = distances
            .map(|number| source + number * self.receiver_interval_columns)
            .filter(|&column| column < self.grid.columns);
        left.chain(right).collect()
    }

    /// The largest distance of a receiver from its shot, in metres.
    pub fn offset_max_m(&self) -> f32 {
        self.grid
            .x_m(self.receivers_per_side * self.receiver_interval_columns)
    }

    /// The parameters of the image: two receivers of a side in each class of offsets.
    pub fn migration_options(&self) -> MigrationOptions {
        MigrationOptions {
            offset_classes: self.receivers_per_side / 2,
            offset_max_m: self.offset_max_m(),
        }
    }

    /// The length of a trace, in seconds.
    pub fn record_s(&self) -> f32 {
        f32::from(self.samples) * f32::from(self.sample_interval_us) * 1e-6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every shot and receiver stands on the grid, and inner shots have the whole spread.
    #[test]
    fn spreads_stay_on_the_line() {
        for size in [SurveySize::Demo, SurveySize::Small] {
            let layout = SurveyOptions { seed: 1, size }.layout();
            for shot in 0..layout.shots {
                assert!(layout.shot_column(shot) < layout.grid.columns);
                let receivers = layout.receiver_columns(shot);
                assert!(receivers.is_sorted());
                assert!(receivers.iter().all(|&column| column < layout.grid.columns));
                assert!(receivers.len() >= layout.receivers_per_side);
            }
            let middle = layout.receiver_columns(layout.shots / 2);
            assert_eq!(middle.len(), 2 * layout.receivers_per_side);
        }
    }
}
