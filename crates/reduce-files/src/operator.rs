//! The operations, and what each makes of each type of elements.

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use half::{bf16, f16};
use num_complex::Complex;
use serde::{Deserialize, Serialize};

use super::element::{Element, Mean, MeanTerm, Narrow};
use crate::npy::ElementType;

/// The operations on elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Operator {
    /// True if all are true; numbers other than 0 are
    All,
    /// True if one is true; numbers other than 0 are
    Any,
    /// The largest, or NaN if there is one; complex numbers by their real parts first
    Max,
    /// The arithmetic mean; f64 for integers and bool
    Mean,
    /// The smallest, or NaN if there is one; complex numbers by their real parts first
    Min,
    /// The product; integers wrap
    Prod,
    /// The sum; integers wrap, of bool it is how many are true
    Sum,
}

/// The way from elements of files to those of the result.
pub(super) struct Recipe<T, F> {
    /// The name of the combination.
    pub(super) name: &'static str,
    /// Combines two elements of the type that is computed with, the left and the right one.
    pub(super) combine: F,
    /// The type of the result's elements.
    pub(super) output: ElementType,
    /// Makes elements to compute with from those of a file, both as bytes; `None` if they are the same.
    pub(super) load: Option<Load>,
    /// Makes the result's bytes from combined elements and the number of files; `None` if they are the same.
    pub(super) finish: Option<Finish<T>>,
}

/// Makes elements to compute with from those of a file in this machine's byte order.
pub(super) type Load = fn(&[u8], &mut [u8]);
/// Makes the result's bytes from combined elements and the number of files.
pub(super) type Finish<T> = fn(&[T], u32) -> Vec<u8>;

/// Follows a recipe, of whichever types.
pub(super) trait Kitchen {
    /// The outcome.
    type Meal;

    /// Follows it.
    fn follow<T: Element>(
        self,
        recipe: Recipe<T, impl Fn(T, T) -> T + Copy + Send + Sync + 'static>,
    ) -> Self::Meal;
}

/// Calls a function with the type of the elements.
macro_rules! with_type {
    ($element:expr, $function:ident($($argument:expr),*)) => {
        match $element {
            ElementType::Bf16 => $function::<bf16, K>($($argument),*),
            ElementType::Bool | ElementType::U8 => $function::<u8, K>($($argument),*),
            ElementType::C64 => $function::<Complex<f32>, K>($($argument),*),
            ElementType::C128 => $function::<Complex<f64>, K>($($argument),*),
            ElementType::F16 => $function::<f16, K>($($argument),*),
            ElementType::F32 => $function::<f32, K>($($argument),*),
            ElementType::F64 => $function::<f64, K>($($argument),*),
            ElementType::I8 => $function::<i8, K>($($argument),*),
            ElementType::I16 => $function::<i16, K>($($argument),*),
            ElementType::I32 => $function::<i32, K>($($argument),*),
            ElementType::I64 => $function::<i64, K>($($argument),*),
            ElementType::U16 => $function::<u16, K>($($argument),*),
            ElementType::U32 => $function::<u32, K>($($argument),*),
            ElementType::U64 => $function::<u64, K>($($argument),*),
        }
    };
}

impl Operator {
    /// Has the recipe followed by which NumPy applies this operation to elements of a type.
    pub(super) fn apply<K: Kitchen>(self, element: ElementType, kitchen: K) -> K::Meal {
        match (self, element) {
            (Self::All, _) | (Self::Min, ElementType::Bool) => with_type!(element, all(kitchen)),
            (Self::Any, _) | (Self::Max, ElementType::Bool) => with_type!(element, any(kitchen)),
            (Self::Mean, _) => mean(element, kitchen),
            (Self::Sum, ElementType::Bool) => kitchen.follow(Recipe {
                load: Some(load_truths::<u8, i64>),
                ..same("sum", i64::sum, ElementType::I64)
            }),
            (Self::Prod, ElementType::Bool) => kitchen.follow(Recipe {
                load: Some(load_truths::<u8, i64>),
                ..same("prod", i64::product, ElementType::I64)
            }),
            _ => with_type!(element, in_own_type(self, element, kitchen)),
        }
    }
}

fn in_own_type<T: Element, K: Kitchen>(operator: Operator, element: ElementType, kitchen: K) -> K::Meal {
    match operator {
        Operator::Max => kitchen.follow(same("max", T::larger, element)),
        Operator::Min => kitchen.follow(same("min", T::smaller, element)),
        Operator::Prod => kitchen.follow(same("prod", T::product, element)),
        _ => kitchen.follow(same("sum", T::sum, element)),
    }
}

fn all<T: Element, K: Kitchen>(kitchen: K) -> K::Meal {
    kitchen.follow(Recipe {
        load: Some(load_truths::<T, u8>),
        ..same("all", |left: u8, right| left & right, ElementType::Bool)
    })
}

fn any<T: Element, K: Kitchen>(kitchen: K) -> K::Meal {
    kitchen.follow(Recipe {
        load: Some(load_truths::<T, u8>),
        ..same("any", |left: u8, right| left | right, ElementType::Bool)
    })
}

fn mean<K: Kitchen>(element: ElementType, kitchen: K) -> K::Meal {
    match element {
        ElementType::Bf16 => mean_of(Some(load_terms::<bf16, f32>), element, narrowed::<bf16>, kitchen),
        ElementType::F16 => mean_of(Some(load_terms::<f16, f32>), element, narrowed::<f16>, kitchen),
        ElementType::C64 => mean_of(None, element, means::<Complex<f32>>, kitchen),
        ElementType::C128 => mean_of(None, element, means::<Complex<f64>>, kitchen),
        ElementType::F32 => mean_of(None, element, means::<f32>, kitchen),
        ElementType::F64 => mean_of(None, element, means::<f64>, kitchen),
        ElementType::Bool => mean_of_integers(load_truths::<u8, f64>, kitchen),
        ElementType::I8 => mean_of_integers(load_terms::<i8, f64>, kitchen),
        ElementType::I16 => mean_of_integers(load_terms::<i16, f64>, kitchen),
        ElementType::I32 => mean_of_integers(load_terms::<i32, f64>, kitchen),
        ElementType::I64 => mean_of_integers(load_terms::<i64, f64>, kitchen),
        ElementType::U8 => mean_of_integers(load_terms::<u8, f64>, kitchen),
        ElementType::U16 => mean_of_integers(load_terms::<u16, f64>, kitchen),
        ElementType::U32 => mean_of_integers(load_terms::<u32, f64>, kitchen),
        ElementType::U64 => mean_of_integers(load_terms::<u64, f64>, kitchen),
    }
}

fn mean_of_integers<K: Kitchen>(load: Load, kitchen: K) -> K::Meal {
    mean_of(Some(load), ElementType::F64, means::<f64>, kitchen)
}

fn mean_of<T: Mean, K: Kitchen>(
    load: Option<Load>,
    output: ElementType,
    finish: Finish<T>,
    kitchen: K,
) -> K::Meal {
    kitchen.follow(Recipe {
        load,
        finish: Some(finish),
        ..same("mean", T::sum, output)
    })
}

/// The recipe in which elements stay of their type.
fn same<T, F: Fn(T, T) -> T>(name: &'static str, combine: F, output: ElementType) -> Recipe<T, F> {
    Recipe {
        name,
        combine,
        output,
        load: None,
        finish: None,
    }
}

fn load_truths<T: Element, C: Pod + From<u8>>(raw: &[u8], into: &mut [u8]) {
    load(raw, into, |element: T| C::from(u8::from(element.is_true())));
}

fn load_terms<T: MeanTerm<C>, C: Pod>(raw: &[u8], into: &mut [u8]) {
    load(raw, into, T::term);
}

fn load<T: Pod, C: Pod>(raw: &[u8], into: &mut [u8], convert: impl Fn(T) -> C) {
    for (into, &element) in cast_slice_mut(into).iter_mut().zip(cast_slice(raw)) {
        *into = convert(element);
    }
}

fn means<T: Mean>(sums: &[T], terms: u32) -> Vec<u8> {
    let means: Vec<T> = sums.iter().map(|sum| sum.mean(terms)).collect();
    cast_slice(&means).to_vec()
}

fn narrowed<T: Pod + Narrow>(sums: &[f32], terms: u32) -> Vec<u8> {
    let means: Vec<T> = sums.iter().map(|sum| T::narrow(sum.mean(terms))).collect();
    cast_slice(&means).to_vec()
}
