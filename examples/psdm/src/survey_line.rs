//! The straight line of a survey, on which positions become distances.

/// A straight line in the horizontal plane with a place where x is 0 and a direction in which x grows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurveyLine {
    /// The coordinates of x = 0, in metres.
    pub start_m: [f64; 2],
    /// The direction, of length 1.
    pub direction: [f64; 2],
}

impl SurveyLine {
    /// The line from which the sum of squared distances of the points is least; x is 0 at their centre. Points at one
    /// place have a line along the first coordinate.
    pub(crate) fn fit(points: impl Iterator<Item = [f64; 2]> + Clone) -> Self {
        // Map coordinates are large: sums of squares keep their digits only near the points.
        let near = points.clone().next().unwrap_or_default();
        let (mut count, mut sum) = (0.0, [0.0; 2]);
        for point in points.clone() {
            count += 1.0;
            sum = [sum[0] + point[0] - near[0], sum[1] + point[1] - near[1]];
        }
        let centre = [near[0] + sum[0] / count, near[1] + sum[1] / count];
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for point in points {
            let (x, y) = (point[0] - centre[0], point[1] - centre[1]);
            xx += x * x;
            xy += x * y;
            yy += y * y;
        }
        // The principal axis of the second moments.
        let angle = 0.5 * (2.0 * xy).atan2(xx - yy);
        Self {
            start_m: centre,
            direction: [angle.cos(), angle.sin()],
        }
    }

    /// The place along the line of a point, in metres.
    pub fn x_m(&self, point: [f64; 2]) -> f64 {
        let [x, y] = self.relative_to_start(point);
        x * self.direction[0] + y * self.direction[1]
    }

    /// The distance of a point from the line, in metres.
    pub fn distance_m(&self, point: [f64; 2]) -> f64 {
        let [x, y] = self.relative_to_start(point);
        (y * self.direction[0] - x * self.direction[1]).abs()
    }

    /// The same line, on which x grows from one point to another.
    pub(crate) fn towards(self, from: [f64; 2], to: [f64; 2]) -> Self {
        match self.x_m(to) < self.x_m(from) {
            true => Self {
                direction: self.direction.map(|component| -component),
                ..self
            },
            false => self,
        }
    }

    /// The same line, on which x is 0 where it was another value.
    pub(crate) fn starting_at(self, x_m: f64) -> Self {
        let start_m = [0, 1].map(|axis| self.start_m[axis] + x_m * self.direction[axis]);
        Self { start_m, ..self }
    }

    fn relative_to_start(&self, point: [f64; 2]) -> [f64; 2] {
        [point[0] - self.start_m[0], point[1] - self.start_m[1]]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Points on a line in any direction, far from the origin, get their distances along it back, and none from it.
        #[test]
        fn points_of_a_line_are_on_it(
            angle in 0.0f64..std::f64::consts::TAU,
            start in prop::array::uniform2(-6e6f64..6e6),
            steps in prop::collection::vec(0.1f64..50.0, 2..40),
        ) {
            let mut places = vec![0.0];
            places.extend(steps.iter().scan(0.0, |x, step| {
                *x += step;
                Some(*x)
            }));
            let point = |x: &f64| [start[0] + x * angle.cos(), start[1] + x * angle.sin()];
            let points: Vec<_> = places.iter().map(point).collect();
            let line = SurveyLine::fit(points.iter().copied()).towards(points[0], points[points.len() - 1]);
            let line = line.starting_at(line.x_m(points[0]));
            for (place, point) in places.iter().zip(&points) {
                prop_assert!((line.x_m(*point) - place).abs() < 1e-5);
                prop_assert!(line.distance_m(*point) < 1e-5);
            }
        }
    }

    /// A point beside the line has its distance; points at one place have a line too.
    #[test]
    fn distances_are_from_the_line() {
        let points = [[0.0, 1.0], [10.0, -1.0], [20.0, -1.0], [30.0, 1.0]];
        let line = SurveyLine::fit(points.into_iter());
        assert_eq!(line.direction, [1.0, 0.0]);
        assert_eq!(line.distance_m([7.0, 4.0]), 4.0);
        assert_eq!(line.towards([30.0, 0.0], [0.0, 0.0]).direction[0], -1.0);
        let place = SurveyLine::fit([[5.0, 6.0]].into_iter());
        assert_eq!((place.x_m([5.0, 6.0]), place.distance_m([5.0, 6.0])), (0.0, 0.0));
    }
}
