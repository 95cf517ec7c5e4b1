//! The velocity model of an imported survey, and its place on the line.

use std::io::{Read, Seek};

use crate::{
    Grid, ImportOptions, PlanError, Positions, Section, SegyReader, SurveyLine, survey::VELOCITIES_M_S,
    survey_plan::in_range, trace_positions::TracePositions,
};

/// The velocity that the survey is migrated with. `F` is the path or the reader of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum VelocityModel<F> {
    /// One velocity everywhere between the outermost positions.
    Constant(ConstantVelocity),
    /// A SEG-Y file of columns whose positions are in the coordinates of the traces, at equal distances, which are
    /// also those of the samples, in millimetres in place of microseconds.
    File(F),
}

/// One velocity, and the grid that it is on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConstantVelocity {
    /// The velocity, in m/s.
    pub velocity_m_s: f32,
    /// The spacing of the image, in metres; rounded to millimetres.
    pub spacing_m: f32,
    /// The depth of the image, in metres; by default as deep as the last sample sees.
    pub depth_m: Option<f32>,
}

impl ConstantVelocity {
    /// One velocity on a grid from the leftmost position to the rightmost.
    pub(crate) fn on_line(
        self,
        line: SurveyLine,
        positions: &TracePositions,
        record_s: f64,
        options: &ImportOptions,
    ) -> Result<(SurveyLine, Section), PlanError> {
        let ConstantVelocity {
            velocity_m_s,
            spacing_m,
            depth_m,
        } = self;
        let depth_m = depth_m.map_or(0.5 * f64::from(velocity_m_s) * record_s, f64::from);
        in_range(
            "the velocity",
            velocity_m_s.into(),
            100.0..=20_000.0,
            "100 to 20000 m/s",
        )?;
        in_range(
            "the spacing",
            spacing_m.into(),
            0.001..=65.535,
            "0.001 to 65.535 m",
        )?;
        in_range("the depth", depth_m, 0.001..=1e6, "0.001 to 1000000 m")?;
        // In SEG-Y the spacing is a whole number of millimetres.
        let spacing_m = (spacing_m * 1000.0).round() / 1000.0;
        let places = positions
            .traces
            .iter()
            .flat_map(|trace| trace.place.ends_m(&line));
        let (left, right) = places.fold((f64::MAX, f64::MIN), |(left, right), x| {
            (left.min(x), right.max(x))
        });
        let nodes = |length: f64| (length / f64::from(spacing_m)).ceil() as usize;
        let grid = Grid {
            // A column more keeps the last position inside when it is rounded to centimetres.
            columns: nodes(right - left).saturating_add(2),
            rows: nodes(depth_m).saturating_add(1),
            spacing_m,
        };
        check_size(grid, options)?;
        Ok((
            line.starting_at(left),
            Section::from_function(grid, |_, _| velocity_m_s),
        ))
    }
}

/// The velocity model of a file, and the line so that x is 0 at its first column and grows towards its last.
pub(crate) fn read<R: Read + Seek>(
    file: &mut SegyReader<R>,
    line: SurveyLine,
    tolerance_m: &impl Fn(f32) -> f64,
    options: &ImportOptions,
) -> Result<(SurveyLine, Section), PlanError> {
    let grid = Grid {
        columns: usize::try_from(file.traces()).unwrap_or(usize::MAX),
        rows: file.samples().into(),
        spacing_m: f32::from(file.sample_interval()) / 1000.0,
    };
    check_size(grid, options)?;
    let spacing_m = f64::from(grid.spacing_m);
    let fewest = grid.columns.min(grid.rows) as f64;
    in_range(
        "the number of its traces or samples",
        fewest,
        2.0..=f64::MAX,
        "2 or more",
    )?;
    in_range(
        "the interval of its samples",
        spacing_m,
        0.001..=65.535,
        "0.001 to 65.535 m",
    )?;
    let positions = TracePositions::read(file, Positions::Auto)?;
    let left_out = positions.left_out as f64;
    in_range(
        "the number of its dead or auxiliary traces",
        left_out,
        0.0..=0.0,
        "0",
    )?;
    positions.distance_max_m(file, &line, tolerance_m(grid.spacing_m))?;
    let midpoint = |column: usize| positions.traces[column].place.midpoint();
    let line = line.towards(midpoint(0), midpoint(grid.columns - 1));
    let line = line.starting_at(line.x_m(midpoint(0)));
    let mut values = Vec::with_capacity(grid.nodes());
    for (column, position) in positions.traces.iter().enumerate() {
        let (trace, offset) = (position.trace, file.trace_offset(position.trace));
        let (x_m, expected_m) = (line.x_m(midpoint(column)), column as f64 * spacing_m);
        if (x_m - expected_m).abs() > 0.5 * spacing_m {
            return Err(PlanError::VelocityColumn {
                trace,
                offset,
                x_m,
                expected_m,
            });
        }
        let (_, velocities) = file.trace(trace)?;
        if let Some(&velocity_m_s) = velocities
            .iter()
            .find(|velocity| !VELOCITIES_M_S.contains(velocity))
        {
            return Err(PlanError::VelocityValue {
                trace,
                offset,
                velocity_m_s,
            });
        }
        values.extend(velocities);
    }
    Ok((line, Section { grid, values }))
}

fn check_size(grid: Grid, options: &ImportOptions) -> Result<(), PlanError> {
    let nodes = grid
        .columns
        .checked_mul(grid.rows)
        .filter(|nodes| *nodes <= NODES_MAX);
    let values = nodes.and_then(|nodes| nodes.checked_mul(options.offset_classes));
    match values.is_some_and(|values| values <= VALUES_MAX)
        && grid.rows <= usize::from(u16::MAX)
        && grid.width_m() <= WIDTH_MAX_M
    {
        true => Ok(()),
        false => Err(PlanError::ImageSize {
            columns: grid.columns,
            rows: grid.rows,
            classes: options.offset_classes,
        }),
    }
}

/// The positions of a survey are whole centimetres in 32 bits.
const WIDTH_MAX_M: f32 = 2e7;
/// Nodes of an image.
const NODES_MAX: usize = 1 << 24;
/// Values in all gathers of an image, 4 GiB.
const VALUES_MAX: usize = 1 << 30;
