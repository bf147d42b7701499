"""The operations every front shares: fronts translate words, app acts."""
