"""What plugs into TVM's MetaSchedule on the side of the data: builder, runner, databases."""
