//! `exp`, `sin` and the like, for the whole executable.
//!
//! Otherwise they were the system's, in a library that each launcher and agent would load and never use: 0.2 ms, and 150 KiB
//! (`docs/decisions/0010`). One that is missing here is taken from there, with the library, which a test and `cargo xtask
//! link-order --check` find out.

use std::arch::global_asm;

macro_rules! define {
    ($($name:ident($($argument:ident),*: $number:ty);)*) => {$(
        // SAFETY: it is the function of C that has this name, by its signature and its meaning.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $number),*) -> $number {
            libm::$name($($argument),*)
        }
    )*};
}

define! {
    exp(x: f64);
    exp2(x: f64);
    expf(x: f32);
    expm1(x: f64);
    log(x: f64);
    log10(x: f64);
    log1p(x: f64);
    pow(x, y: f64);
    sinf(x: f32);
}

// Libraries that the executable opens have the system's: theirs say by `errno` what went wrong.
global_asm!(
    ".hidden exp",
    ".hidden exp2",
    ".hidden expf",
    ".hidden expm1",
    ".hidden log",
    ".hidden log10",
    ".hidden log1p",
    ".hidden pow",
    ".hidden sincos",
    ".hidden sinf",
);

/// Both at once, as the compiler calls it where the sine and the cosine of a number are wanted.
///
/// # Safety
/// The pointers are those of numbers that can be written.
// SAFETY: it is the function of C that has this name, by its signature and its meaning.
#[unsafe(no_mangle)]
unsafe extern "C" fn sincos(x: f64, sine: *mut f64, cosine: *mut f64) {
    let (sin, cos) = libm::sincos(x);
    // SAFETY: as the caller promises.
    unsafe {
        *sine = sin;
        *cosine = cos;
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::{E, LN_10, SQRT_2};

    /// Each is the function that it is called.
    #[test]
    fn functions_are_what_they_are_called() {
        let (sine, cosine) = std::hint::black_box(0.5f64).sin_cos();
        let one = std::hint::black_box(1.0f64);
        for (found, expected) in [
            (one.exp(), E),
            ((3.5 * one).exp2(), 8.0 * SQRT_2),
            (f64::from((one as f32).exp()), E),
            ((1e-10 * one).exp_m1(), 1.000_000_000_05e-10),
            ((10.0 * one).ln(), LN_10),
            ((1000.0 * one).log10(), 3.0),
            ((1e-10 * one).ln_1p(), 0.999_999_999_95e-10),
            ((2.0 * one).powf(0.3), 1.231_144_413_344_916_3),
            (f64::from((one as f32).sin()), 0.841_470_984_807_896_5),
            (sine, 0.479_425_538_604_203),
            (cosine, 0.877_582_561_890_372_7),
        ] {
            // Two of them have 24 bits only.
            assert!((found / expected - 1.0).abs() < 1e-7, "{found}, not {expected}");
        }
    }
}
