"""What arrays of a graph are, by how they are made: facts that several rules ask for."""
