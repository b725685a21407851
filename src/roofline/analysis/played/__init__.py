"""Programs that have not run: the times of their played schedules, their timeline, and their collectives."""
