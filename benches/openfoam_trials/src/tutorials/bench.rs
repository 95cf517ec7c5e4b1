//! One tutorial: what it should come to, and what it comes to.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    slice,
    time::{Duration, Instant},
};

use anyhow::Context;
use rand_core::Rng;
use rand_pcg::Pcg64;
use ropewalk_openfoam::{CaseOptions, Time, number_of};

use super::{
    super::{
        cases::make::{copy_tutorial, edit},
        cavity::tool,
        solver::{Mode, Solver, copy},
    },
    table::Tutorial,
};

type Field = (PathBuf, Vec<u8>);
type Fields = Vec<Field>;

/// A tutorial as it is before any run, and what it should come to.
pub(super) struct Bench<'a> {
    tutorial: &'a Tutorial,
    library: &'a Path,
    folder: PathBuf,
    fresh: Solver,
    /// The fields of each output of the run that nobody disturbed.
    outputs: BTreeMap<String, Fields>,
    steps: usize,
    /// How far OpenFOAM's own restarts are off, where they do not come to the same bits.
    own_distance: OnceCell<f64>,
}

/// The outcome of a run that was killed and begun again.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) kills: u32,
    pub(super) restores: usize,
    pub(super) quarantined: usize,
    /// Every output has the bits of the undisturbed run's.
    pub(super) is_as_undisturbed: bool,
    /// How far the last output is off, where steps are adjustable, and how far those of OpenFOAM's own
    /// restarts are.
    pub(super) distance: Option<(f64, f64)>,
    pub(super) faults: Vec<String>,
}

impl<'a> Bench<'a> {
    pub(super) fn prepare(
        folder: &Path,
        library: &'a Path,
        tutorial: &'a Tutorial,
        mode: Mode,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("tutorial")
            .tempdir_in(folder)?
            .keep();
        let case = folder.join("fresh");
        copy_tutorial(tutorial.source, &case)?;
        edit(&case, "system/blockMeshDict", |text| tutorial.mesh(text))?;
        edit(&case, "system/controlDict", |text| {
            format!("{text}\n{}\n", tutorial.control)
        })?;
        tool(&case, "blockMesh", &[])?;
        if case.join("system/setFieldsDict").exists() {
            tool(&case, "setFields", &[])?;
        }
        if mode != Mode::Serial {
            let two = include_str!("../cavity/system/decomposeParDict");
            fs::write(case.join("system/decomposeParDict"), two)?;
            tool(&case, "decomposePar", &[])?;
        }
        let mut bench = Self {
            tutorial,
            library,
            folder,
            fresh: Solver {
                application: tutorial.application,
                case,
                mode,
            },
            outputs: BTreeMap::new(),
            steps: 0,
            own_distance: OnceCell::new(),
        };
        let undisturbed = bench.copy_of("undisturbed")?;
        undisturbed.finish(None)?;
        bench.outputs = outputs(&undisturbed)?;
        bench.steps = undisturbed.log().matches("\nTime = ").count();
        Ok(bench)
    }

    fn copy_of(&self, name: &str) -> anyhow::Result<Solver> {
        let solver = Solver {
            case: self.folder.join(name),
            ..self.fresh.clone()
        };
        let _ = fs::remove_dir_all(&solver.case);
        copy(&self.fresh.case, &solver.case)?;
        Ok(solver)
    }

    /// Kills a run so many times, unless it ends before, lets it come to its end, and looks at what is left.
    pub(super) fn killed(&self, kills: u32, random: &mut Pcg64) -> anyhow::Result<Outcome> {
        let solver = self.copy_of("killed")?;
        let began = Instant::now();
        let case = solver.open(CaseOptions {
            every: Some(EVERY),
            ..CaseOptions::new(self.library)
        })?;
        let mut outcome = Outcome::default();
        // The steps at which the result was restored, in rising order.
        let mut restored: Vec<u64> = Vec::new();
        loop {
            let prepared = case.prepare()?;
            outcome.quarantined += prepared.quarantined.len();
            if outcome.kills > 0 {
                let step = prepared.from.map_or(0, |held| held.step);
                outcome.restores += usize::from(step > 0);
                restored.retain(|&earlier| earlier < step);
                restored.extend((step > 0).then_some(step));
            }
            let mut running = solver.start(Some(&prepared))?;
            if outcome.kills == kills {
                solver.wait(running)?;
                break;
            }
            let room = (self.steps / (kills as usize + 1)).max(1);
            let steps = 2 + random.next_u32() as usize % room;
            let pause = Duration::from_micros(u64::from(random.next_u32() % 20_000));
            let killed = match solver.await_steps_or_end(steps, &mut running)? {
                Some(moment) => running.kill_at(moment + pause, random)?,
                None => running.kill_at(Instant::now(), random)?,
            };
            if !killed {
                break;
            }
            outcome.kills += 1;
        }
        case.purge()?;
        case.finish()?;
        self.judge(&solver, &restored, began.elapsed(), &mut outcome)?;
        Ok(outcome)
    }

    fn judge(
        &self,
        solver: &Solver,
        restored: &[u64],
        took: Duration,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let control = "system/controlDict";
        if fs::read(solver.case.join(control))? != fs::read(self.fresh.case.join(control))? {
            outcome.faults.push(format!("{control} is not as it was"));
        }
        let found = outputs(solver)?;
        if self.tutorial.by_clock {
            // The run has come to its end, and the saves are not among its outputs. Each process counts whole seconds
            // of the clock from its start on, so that it may be one ahead.
            let processes = u64::from(outcome.kills) + 1;
            if found.len() as u64 > took.as_secs() + 1 + processes {
                outcome
                    .faults
                    .push(format!("{} outputs in {took:?}", found.len()));
            }
            return Ok(());
        }
        let names =
            |outputs: &BTreeMap<String, Fields>| outputs.keys().cloned().collect::<Vec<_>>().join(" ");
        if names(&found) != names(&self.outputs) {
            outcome.faults.push(format!(
                "there are the outputs {} and not {}",
                names(&found),
                names(&self.outputs)
            ));
            return Ok(());
        }
        outcome.is_as_undisturbed = found == self.outputs;
        let (Some((last, fields)), false) = (found.last_key_value(), outcome.is_as_undisturbed) else {
            return Ok(());
        };
        let Some(step) = self.tutorial.step else {
            let undisturbed = self.outputs.get(last).context("both have the same outputs")?;
            let distance = distance(fields, undisturbed);
            let own = self.own_distance(last)?;
            outcome.distance = Some((distance, own));
            if distance.is_nan() || distance > OWN_MAX * own {
                outcome.faults.push(format!(
                    "after restarts at {restored:?} it is {distance:e} off, and OpenFOAM's own restarts {own:e}"
                ));
            }
            let steps = last_index(solver, last)?;
            if steps != self.steps {
                outcome
                    .faults
                    .push(format!("it takes {steps} steps and not {}", self.steps));
            }
            return Ok(());
        };
        let by_itself = self.by_itself(restored, step)?;
        let expected = by_itself.get(last).context("OpenFOAM makes all outputs")?;
        for (found, expected) in fields.iter().zip(expected) {
            let name = found.0.file_name().unwrap_or_default().to_string_lossy();
            // OpenFOAM writes an output before its function objects are done with the step, so that its own
            // restart leaves out a step of what they transport; ours does not.
            let is_behind = self.tutorial.transported.contains(&&*name);
            // Of how long it is a mean OpenFOAM writes 16 digits, and we write all.
            let is_mean = name.ends_with("Mean");
            let is_near = || is_mean && distance(slice::from_ref(found), slice::from_ref(expected)) < 1e-12;
            if found != expected && !is_behind && !is_near() {
                outcome.faults.push(format!(
                    "after restarts at {restored:?} {} is not that of OpenFOAM, restarted there by itself",
                    found.0.display()
                ));
            }
        }
        Ok(())
    }

    /// The outputs of OpenFOAM without us, stopped after these steps and started again at the exact time.
    fn by_itself(&self, stops: &[u64], step: f64) -> anyhow::Result<BTreeMap<String, Fields>> {
        let solver = self.copy_of("by-itself")?;
        let shipped = fs::read_to_string(solver.case.join("system/controlDict"))?;
        let mut begin = String::new();
        for stop in stops {
            let end = *stop as f64 * step;
            let control = format!(
                "{shipped}{begin}endTime {end:.12}; writeControl timeStep; writeInterval {stop}; writeFormat binary;\n"
            );
            fs::write(solver.case.join("system/controlDict"), control)?;
            solver.finish(None)?;
            let place = solver.case.join(solver.mode.places()[0]);
            let time = times(&place)?
                .pop()
                .context("OpenFOAM has written its last step")?;
            let state = fs::read_to_string(place.join(time.name()).join("uniform/time"))?;
            let value = number_of(&state, "value").context("uniform/time has the time")?;
            begin = format!("startFrom startTime; startTime {value};\n");
        }
        // It would count other outputs from where it began.
        let last = format!("writeControl timeStep; writeInterval {};\n", self.steps);
        fs::write(solver.case.join("system/controlDict"), shipped + &begin + &last)?;
        solver.finish(None)?;
        outputs(&solver)
    }

    /// How far OpenFOAM without us is off at the end, if it is stopped at each output and started again at
    /// the exact time and with the exact step: there it adjusts its steps as if it had not been stopped.
    fn own_distance(&self, last: &str) -> anyhow::Result<f64> {
        if let Some(&distance) = self.own_distance.get() {
            return Ok(distance);
        }
        let solver = self.copy_of("by-itself")?;
        let control = solver.case.join("system/controlDict");
        let shipped = fs::read_to_string(&control)?;
        let mut begin = String::new();
        let mut most: f64 = 0.0;
        for (time, _) in self
            .outputs
            .iter()
            .filter(|&(time, _)| time != "0" && time != last)
        {
            fs::write(
                &control,
                format!("{shipped}{begin}endTime {time}; writeFormat binary;\n"),
            )?;
            solver.finish(None)?;
            begin = format!("startFrom startTime; startTime {};\n", exact(&solver, time)?);
            let tried = Solver {
                case: self.folder.join("tried"),
                ..solver.clone()
            };
            let _ = fs::remove_dir_all(&tried.case);
            copy(&solver.case, &tried.case)?;
            fs::write(tried.case.join("system/controlDict"), format!("{shipped}{begin}"))?;
            tried.finish(None)?;
            let undisturbed = self.outputs.get(last).context("it has this output")?;
            most = most.max(distance(&tried.fields(last)?, undisturbed));
        }
        Ok(*self.own_distance.get_or_init(|| most))
    }
}

/// OpenFOAM's own note on a time that it has written.
fn state(solver: &Solver, time: &str) -> anyhow::Result<String> {
    let place = solver.case.join(solver.mode.places()[0]);
    Ok(fs::read_to_string(place.join(time).join("uniform/time"))?)
}

fn exact(solver: &Solver, time: &str) -> anyhow::Result<String> {
    let state = state(solver, time)?;
    let value = number_of(&state, "value").context("uniform/time has the time")?;
    Ok(value.to_owned())
}

fn last_index(solver: &Solver, time: &str) -> anyhow::Result<usize> {
    let state = state(solver, time)?;
    let index = number_of(&state, "index").context("uniform/time has the step")?;
    Ok(index.parse()?)
}

/// How far fields that are written as text are from others, as a part of the largest value.
fn distance(found: &[Field], expected: &[Field]) -> f64 {
    let mut most: f64 = 0.0;
    for ((_, found), (_, expected)) in found.iter().zip(expected) {
        let (found, expected) = (numbers(found), numbers(expected));
        if found.len() != expected.len() {
            return f64::INFINITY;
        }
        let largest = expected
            .iter()
            .fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
        for (a, b) in found.iter().zip(&expected) {
            most = most.max((a - b).abs() / largest);
        }
    }
    most
}

/// The numbers of the cells.
fn numbers(field: &[u8]) -> Vec<f64> {
    let text = String::from_utf8_lossy(field);
    let inside = text.split_once("internalField").map_or("", |(_, rest)| rest);
    let inside = inside.split_once(';').map_or("", |(inside, _)| inside);
    inside
        .split(|character: char| character.is_whitespace() || "()".contains(character))
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// The fields of all outputs; a folder that is not in all places is one too.
fn outputs(solver: &Solver) -> anyhow::Result<BTreeMap<String, Fields>> {
    let mut found = BTreeMap::new();
    for place in solver.mode.places() {
        for time in times(&solver.case.join(place))? {
            let fields = solver.fields(time.name()).unwrap_or_default();
            found.insert(time.name().to_owned(), fields);
        }
    }
    Ok(found)
}

/// The times in a folder, in rising order.
fn times(place: &Path) -> anyhow::Result<Vec<Time>> {
    let names = fs::read_dir(place)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut times: Vec<Time> = names.filter_map(|name| Time::parse(&name)).collect();
    times.sort_by(|a, b| a.value().total_cmp(&b.value()));
    Ok(times)
}

/// How many times as far off a run may be as OpenFOAM's own restarts are: it is killed at other steps, and
/// differences grow with time.
const OWN_MAX: f64 = 10.0;

/// No divisor of the steps between outputs.
const EVERY: u32 = 7;
