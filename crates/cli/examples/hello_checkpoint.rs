//! A loop that is killed and continues from its last save: `hello_checkpoint DIRECTORY STEPS`.

use std::{env, error::Error, path::Path};

use ropewalk::checkpoint::{Named, RunOptions, SavedRun};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().collect();
    let [_, directory, steps] = &words[..] else {
        return Err("usage: hello_checkpoint DIRECTORY STEPS".into());
    };
    let steps = steps.parse()?;
    let mut heat = vec![0.0_f64; 10_000];
    heat[0] = 100.0;

    // One failure in ten seconds is where learning starts; without a guess it is years.
    let options = RunOptions::of_job(Some(Path::new(directory)))?.with_mtbf(10.0);
    let mut run = SavedRun::open(options)?;
    while let Some(step) = run.step(steps, &mut [Named::array("heat", &mut heat)])? {
        if step % 1000 == 0 {
            println!("step {step}");
        }
        for cell in 1..heat.len() - 1 {
            heat[cell] += 0.2 * (heat[cell - 1] - 2.0 * heat[cell] + heat[cell + 1]);
        }
    }
    run.close(true)?;
    println!("sum {}", heat.iter().sum::<f64>());
    Ok(())
}
