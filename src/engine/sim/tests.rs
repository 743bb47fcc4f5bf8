//! What the simulation runs.

use super::audit::Broken;
use super::world::World;

fn env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("it is a number"))
}

/// A whole run of one seed.
fn run(seed: u64) -> Result<World, Broken> {
    let mut world = World::new(seed);
    world
        .create()
        .map_err(|error| format!("not created: {error}"))?;
    let lives = 2 + world.dice.below(5);
    world.come_up(false)?;
    for _ in 0..lives {
        world.live()?;
        world.come_up(true)?;
    }
    world.close()?;
    world.come_up(false)?;
    Ok(world)
}

#[test]
fn seeds() {
    let from = env("SEED").unwrap_or(1);
    let count = if env("SEED").is_some() { 1 } else { env("ONCED_SEEDS").unwrap_or(200) };
    for seed in from..from + count {
        match run(seed) {
            Ok(world) => {
                if count == 1 {
                    println!("{:?} {:?} {:x}", world.stats, world.audit.judged, world.device.trace());
                }
            }
            Err(broken) => panic!("SEED={seed}: {broken}"),
        }
    }
}
