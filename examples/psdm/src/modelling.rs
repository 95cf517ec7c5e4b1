//! Shot records by finite differences, without the direct wave.

use std::{
    num::NonZero,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use crate::{EarthModel, Layout, Section, wave_field::WaveField};

/// The records of one shot's receivers: one trace for each, sample 0 at the peak of the source's wavelet.
#[derive(Clone, Debug, PartialEq)]
pub struct ShotRecord {
    /// Which shot.
    pub shot: usize,
    /// The pressure, receiver after receiver from left to right.
    pub traces: Vec<Vec<f32>>,
}

/// Models all shots on all cores and gives each record to `take` as soon as it is there, in any order. If `take`
/// fails no further shot is begun.
///
/// # Errors
/// The error of `take`.
pub fn model_survey<E>(
    model: &EarthModel,
    layout: &Layout,
    mut take: impl FnMut(ShotRecord) -> Result<(), E>,
) -> Result<(), E> {
    let threads = thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(layout.shots);
    let next = AtomicUsize::new(0);
    // A modelled shot waits for the one before it to be taken, so that few are in memory.
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let shot = next.fetch_add(1, Ordering::Relaxed);
                    if shot >= layout.shots || sender.send(model_shot(model, layout, shot)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        receiver.into_iter().try_for_each(&mut take)
    })
}

/// Models one shot.
///
/// The direct wave is removed by modelling it alone: the same shot in the background without layers, for as long
/// as it takes the direct wave to pass the farthest receiver, and so deep that nothing comes back from below in
/// that time.
pub fn model_shot(model: &EarthModel, layout: &Layout, shot: usize) -> ShotRecord {
    let whole = Run {
        velocity: &model.velocity,
        rows: layout.grid.rows,
        samples: usize::from(layout.samples),
    };
    let slowest = model.background.values.iter().copied().fold(f32::MAX, f32::min);
    let direct_s = 1.3 * (layout.offset_max_m() / slowest + 2.0 / layout.peak_frequency_hz);
    let direct = Run {
        velocity: &model.background,
        rows: layout.grid.rows / 2,
        samples: ((direct_s / layout.record_s() * f32::from(layout.samples)) as usize)
            .min(usize::from(layout.samples)),
    };
    let mut traces = whole.record(layout, shot);
    for (trace, direct) in traces.iter_mut().zip(direct.record(layout, shot)) {
        // In two dimensions a wave has a tail: without a soft end there would be a step where we stop.
        let fade = direct.len() / 4;
        let end = direct.len();
        for (index, (sample, direct)) in trace.iter_mut().zip(direct).enumerate() {
            *sample -= direct * ((end - index) as f32 / fade as f32).min(1.0);
        }
    }
    ShotRecord { shot, traces }
}

/// One solution of the wave equation.
struct Run<'a> {
    velocity: &'a Section,
    rows: usize,
    samples: usize,
}

impl Run<'_> {
    fn record(&self, layout: &Layout, shot: usize) -> Vec<Vec<f32>> {
        let sample_interval_s = f32::from(layout.sample_interval_us) * 1e-6;
        let steps_per_sample = steps_per_sample(layout);
        let time_step_s = sample_interval_s / steps_per_sample as f32;
        // The wavelet has died away this long before its peak.
        let lead_samples =
            (WAVELET_LEAD_PERIODS / layout.peak_frequency_hz / sample_interval_s).ceil() as usize;
        let receivers = layout.receiver_columns(shot);
        let mut traces = vec![Vec::with_capacity(self.samples); receivers.len()];
        let samples = lead_samples + self.samples;
        let steps = samples * steps_per_sample;
        let mut field = WaveField::new(
            self.velocity,
            self.rows,
            time_step_s,
            layout.shot_column(shot),
            steps,
        );
        for sample in 0..samples {
            for step in 0..steps_per_sample {
                if step == 0 && sample >= lead_samples {
                    for (trace, &column) in traces.iter_mut().zip(&receivers) {
                        trace.push(field.at_surface(column));
                    }
                }
                let steps = (sample * steps_per_sample + step) as f32;
                let time_s = steps * time_step_s - lead_samples as f32 * sample_interval_s;
                field.step(ricker(time_s, layout.peak_frequency_hz));
            }
        }
        traces
    }
}

/// Short enough for stability at the highest velocity, and for the wavelet.
fn steps_per_sample(layout: &Layout) -> usize {
    let sample_interval_s = f32::from(layout.sample_interval_us) * 1e-6;
    let longest_s = 0.5 * layout.grid.spacing_m / VELOCITY_MAX_M_S;
    (sample_interval_s / longest_s).ceil() as usize
}

/// Ricker's wavelet, N. Ricker, "The form and laws of propagation of seismic wavelets", Geophysics 18 (1953).
fn ricker(time_s: f32, peak_frequency_hz: f32) -> f32 {
    let argument = (std::f32::consts::PI * peak_frequency_hz * time_s).powi(2);
    (1.0 - 2.0 * argument) * (-argument).exp()
}

const WAVELET_LEAD_PERIODS: f32 = 1.3;
/// No earth model of ours is faster.
const VELOCITY_MAX_M_S: f32 = 3600.0;
