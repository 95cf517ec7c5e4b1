//! A trace made ready for migration: its high frequencies raised, low-passed against aliasing in several
//! degrees, resampled.
//!
//! Low-passing with a triangle as wide as the operator moves from one trace to the next is the anti-aliasing of
//! Lumley, Claerbout and Bevc, "Anti-aliased Kirchhoff 3-D migration" (SEG Expanded Abstracts, 1994); keeping a
//! bank of low-passed traces and choosing by the operator's slope is Gray's, "Frequency-selective design of the
//! Kirchhoff migration operator" (Geophysical Prospecting 40, 1992).

use std::{f32::consts::PI, sync::Arc};

use realfft::{ComplexToReal, RealFftPlanner, RealToComplex, num_complex::Complex32};

/// The versions of one trace, and between them linear interpolation.
pub(crate) struct TraceBank {
    /// For each resampled time the value of each version; the last two are zero.
    values: Vec<[f32; VERSIONS]>,
    samples_per_s: f32,
}

impl TraceBank {
    /// The version for a move-out from trace to trace, as a fractional index for [`TraceBank::at`].
    pub(crate) fn version(move_out_s: f32) -> f32 {
        (move_out_s / MOVE_OUT_STEP_S).min((VERSIONS - 1) as f32 - 1e-3)
    }

    /// The value at a time and between versions; zero after the trace's end.
    pub(crate) fn at(&self, time_s: f32, version: f32) -> f32 {
        let position = time_s * self.samples_per_s;
        let before = (position as usize).min(self.values.len() - 2);
        let version_before = (version as usize).min(VERSIONS - 2);
        let blend = version - version_before as f32;
        let value = |versions: &[f32; VERSIONS]| {
            let (wide, narrow) = (versions[version_before], versions[version_before + 1]);
            wide + blend * (narrow - wide)
        };
        let (now, next) = (value(&self.values[before]), value(&self.values[before + 1]));
        now + (position - before as f32) * (next - now)
    }
}

/// Makes banks from traces of one length.
pub(crate) struct TraceFilter {
    samples: usize,
    sample_interval_s: f32,
    forward: Arc<dyn RealToComplex<f32>>,
    backward: Arc<dyn ComplexToReal<f32>>,
    /// For each version the factor of each frequency.
    responses: [Vec<f32>; VERSIONS],
}

impl TraceFilter {
    /// A filter for traces of this length.
    pub(crate) fn new(samples: usize, sample_interval_s: f32) -> Self {
        let length = (samples + PADDING).next_power_of_two();
        let mut planner = RealFftPlanner::new();
        let responses = std::array::from_fn(|version| {
            let half_width_s = version as f32 * MOVE_OUT_STEP_S;
            (0..=length / 2)
                .map(|index| {
                    let frequency_hz = index as f32 / (length as f32 * sample_interval_s);
                    let triangle = sinc(frequency_hz * half_width_s).powi(2);
                    2.0 * PI * frequency_hz * triangle / length as f32
                })
                .collect()
        });
        Self {
            samples,
            sample_interval_s,
            forward: planner.plan_fft_forward(length),
            backward: planner.plan_fft_inverse(length * RESAMPLING),
            responses,
        }
    }

    /// Returns true if this filter is for traces of this length and sample interval.
    pub(crate) fn is_for(&self, samples: usize, sample_interval_s: f32) -> bool {
        self.samples == samples && self.sample_interval_s == sample_interval_s
    }

    /// The bank of a trace.
    ///
    /// In two dimensions the wave of a source comes as its half integral, and the stack along the operator makes
    /// another half integral, backwards in time, of a reflection (Bleistein, Cohen and Stockwell, Mathematics of
    /// Multidimensional Seismic Imaging, Migration, and Inversion, 2001, chapters 3 and 6). Undone together they are
    /// the factor |omega|: a step of the velocity becomes a zero-phase wavelet.
    pub(crate) fn bank(&self, trace: &[f32]) -> TraceBank {
        assert_eq!(trace.len(), self.samples, "length of a trace");
        let mut input = self.forward.make_input_vec();
        for (index, (padded, sample)) in input.iter_mut().zip(trace).enumerate() {
            // A soft end, for the filter would make a spike of a hard one.
            *padded = sample * ((trace.len() - index) as f32 / PADDING as f32).min(1.0);
        }
        let mut spectrum = self.forward.make_output_vec();
        self.forward
            .process(&mut input, &mut spectrum)
            .expect("the plan made both vectors");
        let mut output = self.backward.make_output_vec();
        let mut filtered = self.backward.make_input_vec();
        let length = trace.len() * RESAMPLING;
        let mut values = vec![[0.0; VERSIONS]; length + 2];
        for (version, response) in self.responses.iter().enumerate() {
            filtered.fill(Complex32::ZERO);
            for ((filtered, value), response) in filtered.iter_mut().zip(&spectrum).zip(response) {
                *filtered = value * response;
            }
            self.backward
                .process(&mut filtered, &mut output)
                .expect("the plan made both vectors, and the ends of the spectrum are real");
            for (values, value) in values.iter_mut().zip(&output[..length]) {
                values[version] = *value;
            }
        }
        TraceBank {
            values,
            samples_per_s: RESAMPLING as f32 / self.sample_interval_s,
        }
    }
}

fn sinc(x: f32) -> f32 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

const VERSIONS: usize = 8;
/// Between the half widths of the triangles of neighbouring versions.
const MOVE_OUT_STEP_S: f32 = 0.005;
/// So many times more samples than the trace has make linear interpolation between them good enough.
const RESAMPLING: usize = 2;
/// Samples between the trace's end and its beginning in the periodic transform.
const PADDING: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    /// A cosine in the middle of a long trace is multiplied by its angular frequency and the triangle's response.
    #[test]
    fn bank_raises_and_smooths() {
        let (samples, interval_s, frequency_hz) = (600, 0.004, 20.0);
        let omega = 2.0 * PI * frequency_hz;
        let trace: Vec<f32> = (0..samples)
            .map(|index| {
                let time_s = index as f32 * interval_s;
                (omega * time_s).cos() * (-((time_s - 1.2) / 0.3).powi(2)).exp()
            })
            .collect();
        let bank = TraceFilter::new(samples, interval_s).bank(&trace);
        for move_out_s in [0.0, 0.01, 0.0125] {
            let response = sinc(frequency_hz * move_out_s).powi(2);
            for step in -9..=9 {
                let time_s = 1.2 + step as f32 * 0.001;
                let expected = omega * (omega * time_s).cos() * response;
                let value = bank.at(time_s, TraceBank::version(move_out_s));
                assert!(
                    (value - expected).abs() < 0.03 * omega,
                    "{value} at {time_s}, expected {expected}"
                );
            }
        }
        assert_eq!(bank.at(2.5, 0.0), 0.0);
        assert_eq!(bank.at(99.0, TraceBank::version(1.0)), 0.0);
    }
}
