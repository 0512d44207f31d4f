//! Scales of axes, and the places of their ticks.

use super::Axis;

/// Steps of a linear axis, times a power of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 2.5, 5.0];
/// Multiples of a power of ten with a tick on a logarithmic axis of few decades.
const LOG_STEPS: [f64; 3] = [1.0, 2.0, 5.0];
/// Most ticks of an axis.
const TICKS_MAX: usize = 8;

/// A linear or logarithmic scale.
#[derive(Clone, Debug)]
pub struct Scale {
    log: bool,
    low: f64,
    high: f64,
    /// Values with a tick, and their texts.
    pub ticks: Vec<(f64, String)>,
}

impl Scale {
    /// A scale that shows all `values`.
    pub fn new(axis: &Axis, values: &[f64]) -> Self {
        let above = |v: &&f64| !axis.log || **v > 0.0;
        let fold = |start: f64, f: fn(f64, f64) -> f64| {
            values.iter().filter(above).copied().fold(start, f)
        };
        let (mut low, mut high) =
            (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max));
        if !low.is_finite() {
            (low, high) = if axis.log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if let Some(names) = &axis.names {
            let margin = 0.04 * (high - low).max(1.0);
            let ticks = names.clone();
            if axis.log {
                return Self { log: true, low: low / 1.15, high: high * 1.15, ticks };
            }
            return Self { log: false, low: low - margin, high: high + margin, ticks };
        }
        if axis.log {
            Self::logarithmic(low, high)
        } else {
            Self::linear(low, high, axis.from_zero)
        }
    }

    fn logarithmic(low: f64, high: f64) -> Self {
        let decades = (high / low).log10();
        let factors: &[f64] = if decades < 2.5 { &LOG_STEPS } else { &LOG_STEPS[..1] };
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let all: Vec<f64> = (first - 1..=last + 1)
            .flat_map(|e| factors.iter().map(move |f| f * 10f64.powi(e)))
            .collect();
        // From the last tick below to the first above.
        let low = all.iter().rev().find(|t| **t <= low * 1.0001).copied().unwrap_or(low);
        let high = all.iter().find(|t| **t >= high * 0.9999 && **t > low).copied().unwrap_or(high);
        let within: Vec<f64> = all.into_iter().filter(|t| (low..=high).contains(t)).collect();
        let every = within.len().div_ceil(TICKS_MAX + 1).max(1);
        let ticks = within.into_iter().step_by(every).map(|t| (t, text(t))).collect();
        Self { log: true, low, high, ticks }
    }

    fn linear(low: f64, high: f64, from_zero: bool) -> Self {
        let low = if from_zero { low.min(0.0) } else { low };
        let high = if high > low { high } else { low + 1.0 };
        let raw = (high - low) / (TICKS_MAX - 1) as f64;
        let power = 10f64.powf(raw.log10().floor());
        let step = STEPS.iter().map(|s| s * power).find(|s| *s >= raw * 0.9999);
        let step = step.unwrap_or(10.0 * power);
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let count = (last - first).round() as usize;
        let ticks = (0..=count).map(|i| (first + i as f64) * step);
        let ticks = ticks.map(|t| (t, text(t))).collect();
        Self { log: false, low: first * step, high: last * step, ticks }
    }

    /// Share of the axis at which a value is, from 0 to 1; values beyond the ends are at them.
    pub fn place(&self, v: f64) -> f64 {
        let share = match self.log {
            true => (v.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (v - self.low) / (self.high - self.low),
        };
        share.clamp(0.0, 1.0)
    }
}

/// A number as readers write it: thousands apart, no more digits than it has.
pub fn text(v: f64) -> String {
    if v == 0.0 {
        return "0".into();
    }
    let digits = (5 - v.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let fixed = format!("{v:.digits$}");
    let (whole, rest) = fixed.split_once('.').unwrap_or((&fixed, ""));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |w| ("-", w));
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    let rest = rest.trim_end_matches('0');
    if !rest.is_empty() {
        out += &format!(".{rest}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(log: bool, values: &[f64]) -> Vec<String> {
        let scale = Scale::new(&Axis::new("", log), values);
        for v in values {
            assert!((0.0..=1.0).contains(&scale.place(*v)));
        }
        scale.ticks.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_numbers_around_the_values() {
        assert_eq!(ticks(false, &[3.0, 9.7]), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(ticks(false, &[0.0, 0.31])[1], "0.05");
        assert_eq!(ticks(true, &[31.0, 100_000.0]), ["10", "100", "1,000", "10,000", "100,000"]);
        assert_eq!(ticks(true, &[30.0, 90.0]), ["20", "50", "100"]);
        assert!(!ticks(false, &[]).is_empty() && !ticks(true, &[0.0]).is_empty());
        assert!(!ticks(false, &[5.0, 5.0]).is_empty() && !ticks(true, &[5.0]).is_empty());
        assert!(ticks(true, &[1e-3, 1e15]).len() <= TICKS_MAX + 1);
        assert_eq!([1234567.0, 0.125, -12_000.0].map(text), ["1,234,567", "0.125", "-12,000"]);
    }

    #[test]
    fn places_run_from_one_end_to_the_other() {
        let scale = Scale::new(&Axis::new("", true), &[10.0, 1000.0]);
        assert_eq!([10.0, 100.0, 1000.0].map(|v| scale.place(v)), [0.0, 0.5, 1.0]);
    }
}
